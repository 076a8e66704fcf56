package acl

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// LibraryVariable is the environment variable that names the AscendCL library to load.
const LibraryVariable = "KVFERRY_ASCENDCL"

// Options say which library to load.
type Options struct {
	// Library is the file to load, or a bare name for the loader's own search. Nothing else is tried then.
	// Empty: the variable KVFERRY_ASCENDCL; if that is empty too, libascendcl.so and libacl_rt.so, by the
	// loader's search and then in the toolkit that ASCEND_HOME_PATH names.
	Library string

	hidden []string // symbols that are taken to be missing; tests of old releases
}

// names are AscendCL's, the older first: newer releases have both and announce the end of the first.
var names = []string{"libascendcl.so", "libacl_rt.so"}

// candidates lists what to try, in order.
func (o Options) candidates() []string {
	if o.Library != "" {
		return []string{o.Library}
	}
	if named := os.Getenv(LibraryVariable); named != "" {
		return []string{named}
	}
	list := append([]string{}, names...)
	home := toolkitHome()
	if home == "" {
		return list
	}
	for _, folder := range []string{"lib64", machine() + "-linux/lib64"} {
		for _, name := range names {
			list = append(list, filepath.Join(home, folder, name))
		}
	}
	return list
}

func toolkitHome() string {
	if home := os.Getenv("ASCEND_HOME_PATH"); home != "" {
		return home
	}
	return os.Getenv("ASCEND_TOOLKIT_HOME")
}

// machine is the processor's name as the toolkit's folders have it.
func machine() string {
	switch runtime.GOARCH {
	case "arm64":
		return "aarch64"
	case "amd64":
		return "x86_64"
	}
	return runtime.GOARCH
}

// An Attempt is one library that was tried and could not be used.
type Attempt struct {
	Library string   // as it was asked for
	Reason  string   // the loader's, or why the library was refused
	Missing []string // the required symbols that it lacks
}

// A LoadError says that no usable AscendCL was found, and all that was tried. It is Config.
type LoadError struct{ Tried []Attempt }

func (e *LoadError) Error() string {
	var b strings.Builder
	b.WriteString("acl: no usable AscendCL library")
	for _, attempt := range e.Tried {
		fmt.Fprintf(&b, "; tried %s: ", attempt.Library)
		if len(attempt.Missing) != 0 {
			fmt.Fprintf(&b, "it has no %s", strings.Join(attempt.Missing, ", "))
		} else {
			b.WriteString(attempt.Reason)
		}
	}
	fmt.Fprintf(&b, "; install CANN and source its set_env.sh, or name the library in %s", LibraryVariable)
	return b.String()
}

// Is reports whether target is Config.
func (e *LoadError) Is(target error) bool { return target == Config }

// toolkitVersion reads the version of a package from the toolkit's own records; "" if there are none.
// It stands in for the library's answer, which old releases do not give.
func toolkitVersion(name string) string {
	home := toolkitHome()
	if home == "" {
		return ""
	}
	text, err := os.ReadFile(filepath.Join(home, "share", "info", name, "version.info"))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if version, ok := strings.CutPrefix(strings.TrimSpace(line), "Version="); ok {
			return version
		}
	}
	return ""
}
