package acl

import (
	"fmt"
	"strings"

	"github.com/kvferry/kvferry/runtime/sharedlib"
)

// LibraryVariable is the environment variable that names the AscendCL library to load.
const LibraryVariable = "KVFERRY_ASCENDCL"

// Options say which library to load.
type Options struct {
	// Library is the file to load, or a bare name for the loader's search; then nothing else is tried. Empty: the
	// variable KVFERRY_ASCENDCL; if that is empty too, libascendcl.so and libacl_rt.so, first by the loader's search
	// and then in the toolkit that ASCEND_HOME_PATH names.
	Library string

	hiddenSymbols []string // symbols that count as missing; for tests of old releases
}

// candidateLibraries returns the libraries to try, in order. The older of the two names is first: newer releases have
// both and announce the end of the first.
func (o Options) candidateLibraries() []string {
	names := []string{"libascendcl.so", "libacl_rt.so"}
	return sharedlib.Search{Library: o.Library, Variable: LibraryVariable, Names: names}.Candidates()
}

// An Attempt is a library that was tried and could not be used.
type Attempt = sharedlib.Attempt

// A LoadError says that no usable AscendCL was found, and what was tried. Its class is Config.
type LoadError struct{ Attempts []Attempt }

func (e *LoadError) Error() string {
	var b strings.Builder
	b.WriteString("acl: no usable AscendCL library")
	sharedlib.AppendAttempts(&b, e.Attempts)
	fmt.Fprintf(&b, "; install CANN and source its set_env.sh, or name the library in %s", LibraryVariable)
	return b.String()
}

// Is reports whether target is Config.
func (e *LoadError) Is(target error) bool { return target == Config }
