package comm

import (
	"fmt"
	"os"
	"strconv"

	"github.com/kvferry/kvferry/runtime/acl"
)

// HCCL has its timeouts from the environment and reads it once, early. So they are set before the library is
// loaded, and the same values are what the residual bound of the leases is computed from.

// An Origin says who has decided a setting.
type Origin int

const (
	// FromUser: the variable was set when the library was loaded.
	FromUser Origin = iota + 1
	// FromOptions: kvferry has set it.
	FromOptions
	// FromLibrary: the library was loaded by somebody else before kvferry could set it; its default is taken to
	// hold.
	FromLibrary
)

func (o Origin) String() string {
	switch o {
	case FromUser:
		return "environment"
	case FromOptions:
		return "kvferry"
	case FromLibrary:
		return "the library's default, as it was loaded before kvferry could set it"
	}
	return fmt.Sprintf("origin %d", int(o))
}

// A Setting is a value in force.
type Setting struct {
	Value int
	From  Origin
}

func (s Setting) String() string { return fmt.Sprintf("%d (%v)", s.Value, s.From) }

// A variable is one that HCCL reads.
type variable struct {
	name         string
	min, max     int
	otherwise    int  // HCCL's own default
	setByKvferry int  // what kvferry has set it to; zero: nothing
	counts       bool // a library was loaded since
}

// The two that bound how long a request may outlive its transfer. Guarded by opening, like the environment.
var (
	timeoutVariable = variable{name: "HCCL_RDMA_TIMEOUT", min: 5, max: 20, otherwise: 20}
	retriesVariable = variable{name: "HCCL_RDMA_RETRY_CNT", min: 1, max: 7, otherwise: 7}
)

// settle gives the value in force, and sets the variable where nobody has and it still counts.
func (v *variable) settle(want int, resident bool) (Setting, error) {
	text := os.Getenv(v.name)
	switch {
	case v.setByKvferry != 0 && text == strconv.Itoa(v.setByKvferry):
		return Setting{v.setByKvferry, FromOptions}, nil
	case text != "":
		value, err := strconv.Atoi(text)
		if err != nil || value < v.min || value > v.max {
			return Setting{}, fmt.Errorf("hccl: %w: %s is %q: give %d to %d, or unset it", acl.Config, v.name, text, v.min,
				v.max)
		}
		return Setting{value, FromUser}, nil
	case resident:
		return Setting{v.otherwise, FromLibrary}, nil
	}
	if err := os.Setenv(v.name, strconv.Itoa(want)); err != nil {
		return Setting{}, err
	}
	v.setByKvferry = want
	return Setting{want, FromOptions}, nil
}

// withdraw unsets what kvferry has set, where no library was ever loaded after that.
func (v *variable) withdraw() {
	if !v.counts && v.setByKvferry != 0 && os.Getenv(v.name) == strconv.Itoa(v.setByKvferry) {
		if os.Unsetenv(v.name) == nil {
			v.setByKvferry = 0
		}
	}
}

// intraRoCE reports whether pairs of one host use RoCE too.
func intraRoCE() bool { return os.Getenv("HCCL_INTRA_ROCE_ENABLE") == "1" }

// intraPCIe reports whether they may use PCIe, which is the vendor's default.
func intraPCIe() bool { return os.Getenv("HCCL_INTRA_PCIE_ENABLE") != "0" }
