package comm

import (
	"fmt"
	"strings"

	"github.com/kvferry/kvferry/runtime/acl"
	"github.com/kvferry/kvferry/runtime/sharedlib"
)

// LibraryVariable is the environment variable that names the HCCL library to load.
const LibraryVariable = "KVFERRY_HCCL"

// Options say which library to load and how to configure HCCL.
type Options struct {
	// Library is the file to load, or a bare name for the loader's search; then nothing else is tried. Empty: the
	// variable KVFERRY_HCCL; if that is empty too, libhcomm.so and libhccl.so, first by the loader's search and then in
	// the toolkit that ASCEND_HOME_PATH names.
	Library string

	// Sequence is the sequence to use; a library that lacks this sequence is refused. Zero: Global if the library
	// offers that, otherwise Exchange. Both ends of a communicator need the same sequence.
	Sequence Sequence

	// RDMATimeout is HCCL_RDMA_TIMEOUT, 5 to 20: a try of a NIC lasts 4.096 µs times two to that power. Zero: 15, which
	// is 134 ms. An environment variable that the user has set takes precedence.
	RDMATimeout int
	// RDMARetries is HCCL_RDMA_RETRY_CNT, 1 to 7: how often a NIC repeats a request. Zero: 7. An environment variable
	// that the user has set takes precedence.
	RDMARetries int

	// DescMax bounds the descriptors of a batch, 1 to 256. Zero: 256. Chips of the 950 generation take 64.
	DescMax int

	hiddenSymbols []string // symbols that count as missing; for tests of old releases
}

// candidateLibraries returns the libraries to try, in order. Newer releases have the one-sided half in a separate
// library.
func (o Options) candidateLibraries() []string {
	names := []string{"libhcomm.so", "libhccl.so"}
	return sharedlib.Search{Library: o.Library, Variable: LibraryVariable, Names: names}.Candidates()
}

func (o *Options) fillDefaults() error {
	if o.Sequence < 0 || o.Sequence > Exchange {
		return fmt.Errorf("%w: Sequence is %v: give Global, Exchange, or zero", ErrInvalid, o.Sequence)
	}
	for _, field := range []struct {
		name           string
		value          *int
		zero, min, max int
	}{
		{"RDMATimeout", &o.RDMATimeout, 15, timeoutVariable.min, timeoutVariable.max},
		{"RDMARetries", &o.RDMARetries, 7, retriesVariable.min, retriesVariable.max},
		{"DescMax", &o.DescMax, DescMax, 1, DescMax},
	} {
		if *field.value == 0 {
			*field.value = field.zero
		}
		if *field.value < field.min || *field.value > field.max {
			return fmt.Errorf("%w: %s is %d: give %d to %d", ErrInvalid, field.name, *field.value, field.min, field.max)
		}
	}
	return nil
}

// An Attempt is a library that was tried and could not be used.
type Attempt = sharedlib.Attempt

// A LoadError says that no usable HCCL was found, and what was tried. Its class is acl.Config.
type LoadError struct{ Attempts []Attempt }

func (e *LoadError) Error() string {
	var b strings.Builder
	b.WriteString("hccl: no library has the one-sided functions")
	sharedlib.AppendAttempts(&b, e.Attempts)
	fmt.Fprintf(&b, "; install CANN and source its set_env.sh, or name the library in %s", LibraryVariable)
	return b.String()
}

// Is reports whether target is acl.Config.
func (e *LoadError) Is(target error) bool { return target == acl.Config }

// A Sequence is a way in which a library makes memory known to a peer. There are two.
type Sequence int

const (
	// Global registers memory once, binds the memory to communicators, and prepares: since about CANN 8.3.
	Global Sequence = iota + 1
	// Exchange registers memory with each communicator, exchanges descriptors and enables access.
	Exchange
)

func (s Sequence) String() string {
	switch s {
	case Global:
		return "global memory"
	case Exchange:
		return "exchange of descriptors"
	}
	return fmt.Sprintf("sequence %d", int(s))
}

// Info describes a loaded library, for logs and reports. No decision depends on a version.
type Info struct {
	Library    string   // the file that was loaded
	CANN       string   // version of the package; "" if the toolkit does not say
	Sequence   Sequence // how memory is made known
	Missing    []string // symbols that the library lacks
	Capability uint32   // configuration items that the library knows; 0: not reported

	// The retries of a NIC after a transfer was given up: 1+RDMARetries tries of each request, each for 4.096 µs times
	// two to the power of RDMATimeout.
	RDMATimeout, RDMARetries Setting

	// IntraRoCE: HCCL_INTRA_ROCE_ENABLE is 1, so that pairs of one host use RoCE, too.
	IntraRoCE bool
	// IntraPCIe: HCCL_INTRA_PCIE_ENABLE is not 0; on A2 the vendor requires the value 0 together with IntraRoCE.
	IntraPCIe bool

	// Signals for which loading installed a handler that does not work with Go; see acl.Info.
	Signals []int
}
