package sharedlib

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// A Search says where a library of CANN may be.
type Search struct {
	Library  string   // the file, or a bare name for the loader's own search; nothing else is tried then
	Variable string   // if Library is empty, the environment variable that names it
	Names    []string // if both are empty: bare names, of which the first usable one is taken
}

// Candidates returns what to try, in order: the named library, or else each of Names, first by the loader's search and
// then in the folders of the toolkit that ASCEND_HOME_PATH or ASCEND_TOOLKIT_HOME names.
func (s Search) Candidates() []string {
	if s.Library != "" {
		return []string{s.Library}
	}
	if named := os.Getenv(s.Variable); named != "" {
		return []string{named}
	}
	list := append([]string{}, s.Names...)
	home := toolkitHome()
	if home == "" {
		return list
	}
	for _, folder := range []string{"lib64", processorName() + "-linux/lib64"} {
		for _, name := range s.Names {
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

// processorName returns the processor's name in the form of the toolkit's folders.
func processorName() string {
	switch runtime.GOARCH {
	case "arm64":
		return "aarch64"
	case "amd64":
		return "x86_64"
	}
	return runtime.GOARCH
}

// An Attempt is a library that was tried and could not be used.
type Attempt struct {
	Library string   // as it was requested
	Reason  string   // the loader's error, or why the library was refused
	Missing []string // the required symbols that it lacks
}

// AppendAttempts appends to a text what was tried and why each attempt failed.
func AppendAttempts(b *strings.Builder, tried []Attempt) {
	for _, attempt := range tried {
		b.WriteString("; tried " + attempt.Library + ": ")
		if len(attempt.Missing) != 0 {
			b.WriteString("it has no " + strings.Join(attempt.Missing, ", "))
		} else {
			b.WriteString(attempt.Reason)
		}
	}
}

// ToolkitVersion reads the version of a package of CANN from the toolkit's own records, or returns "" if there are
// none. Old releases of the libraries cannot report the version themselves.
func ToolkitVersion(name string) string {
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
