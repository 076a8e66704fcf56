package comm

import (
	"fmt"
	"os"
	"strconv"

	"github.com/kvferry/kvferry/runtime/acl"
)

// HCCL reads its timeouts from the environment, once and early. So kvferry sets the variables before the library is
// loaded, and computes the residual time of leases from the same values (M4).

// An Origin says where the value of a setting comes from.
type Origin int

const (
	// FromUser: the variable was set when the library was loaded.
	FromUser Origin = iota + 1
	// FromOptions: kvferry has set the variable.
	FromOptions
	// FromLibrary: the library had been loaded before kvferry could set the variable; the library's default is assumed.
	FromLibrary
)

func (o Origin) String() string {
	switch o {
	case FromUser:
		return "environment"
	case FromOptions:
		return "kvferry"
	case FromLibrary:
		return "the library's default, because the library was loaded before kvferry could set the variable"
	}
	return fmt.Sprintf("origin %d", int(o))
}

// A Setting is a value in force, and the origin of the value.
type Setting struct {
	Value int
	From  Origin
}

func (s Setting) String() string { return fmt.Sprintf("%d (%v)", s.Value, s.From) }

// A envVariable is an environment variable that HCCL reads.
type envVariable struct {
	name           string
	min, max       int
	libraryDefault int  // HCCL's default
	setByKvferry   int  // the value that kvferry has set; zero: none
	loadedSince    bool // a library was loaded after kvferry set it
}

// The two variables that bound how long a request may outlive the transfer. Like the environment, both are guarded by
// openMutex.
var (
	timeoutVariable = envVariable{name: "HCCL_RDMA_TIMEOUT", min: 5, max: 20, libraryDefault: 20}
	retriesVariable = envVariable{name: "HCCL_RDMA_RETRY_CNT", min: 1, max: 7, libraryDefault: 7}
)

// resolveValue returns the value in force. If the variable is not set and the library is not loaded yet,
// resolveValue sets the variable.
func (v *envVariable) resolveValue(want int, resident bool) (Setting, error) {
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
		return Setting{v.libraryDefault, FromLibrary}, nil
	}
	if err := os.Setenv(v.name, strconv.Itoa(want)); err != nil {
		return Setting{}, err
	}
	v.setByKvferry = want
	return Setting{want, FromOptions}, nil
}

// unsetIfOurs unsets the variable if kvferry has set it and no library was loaded since.
func (v *envVariable) unsetIfOurs() {
	if !v.loadedSince && v.setByKvferry != 0 && os.Getenv(v.name) == strconv.Itoa(v.setByKvferry) {
		if os.Unsetenv(v.name) == nil {
			v.setByKvferry = 0
		}
	}
}

// intraRoCE reports whether pairs of one host use RoCE too.
func intraRoCE() bool { return os.Getenv("HCCL_INTRA_ROCE_ENABLE") == "1" }

// intraPCIe reports whether pairs of one host may use PCIe, which is the vendor's default.
func intraPCIe() bool { return os.Getenv("HCCL_INTRA_PCIE_ENABLE") != "0" }
