package libnixl

import (
	"fmt"
	"strings"

	"github.com/kvferry/kvferry/runtime/sharedlib"
)

// LibraryVariable is the environment variable that names the library to load.
const LibraryVariable = "KVFERRY_LIBNIXL"

// Options say which library to load.
type Options struct {
	// Library is the file to load, or a bare name for the loader's search; then nothing else is tried. Empty: the
	// variable KVFERRY_LIBNIXL; if that is empty too, libnixl_capi.so by the loader's search.
	Library string
}

func (o Options) candidateLibraries() []string {
	search := sharedlib.Search{Library: o.Library, Variable: LibraryVariable, Names: []string{"libnixl_capi.so"}}
	return search.Candidates()
}

// Info describes a loaded library, for logs and reports.
type Info struct {
	Library string // the file that was loaded
	// Signals lists the signals for which loading the library has installed a handler that does not run on the
	// alternate stack. A Go program aborts when this kind of handler runs on a Go thread, so the caller should log the
	// list.
	Signals []int
}

// envSettings are the environment variables for UCX that Open sets if the user has not set a value.
var envSettings = []struct{ name, value string }{{"UCX_MEM_EVENTS", "n"}, {"UCX_DEBUG_SIGNO", "0"},
	{"UCX_LOG_FILE", "stderr"}}

// An Attempt is a library that was tried and could not be used.
type Attempt = sharedlib.Attempt

// A LoadError says that no usable libnixl was found, and what was tried.
type LoadError struct{ Attempts []Attempt }

func (e *LoadError) Error() string {
	var b strings.Builder
	b.WriteString("libnixl: no usable library")
	sharedlib.AppendAttempts(&b, e.Attempts)
	fmt.Fprintf(&b, "; install NIXL (PyPI's nixl-cu12 1.5.1 has it; it needs libibverbs1 and librdmacm1), and name its "+
		"libnixl_capi.so in %s", LibraryVariable)
	return b.String()
}
