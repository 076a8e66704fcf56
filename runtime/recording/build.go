package recording

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// module is the path of this module, as builds name it.
const module = "github.com/kvferry/kvferry"

// stampedCommit is set by the Makefile's linker flags. Builds without the flags get the commit from Go, if they were
// made in a repository.
var stampedCommit string

// A Build describes the source of a program's machines.
type Build struct {
	Version  string `json:"version"`
	Commit   string `json:"commit"` // empty if the program does not know it
	Modified bool   `json:"modified"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// CurrentBuild returns the build of the running program.
func CurrentBuild() Build {
	b := Build{Version: "unknown", Commit: stampedCommit, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if info.Main.Path != module {
		for _, dep := range info.Deps {
			if dep.Path == module {
				b.Version = dep.Version
			}
		}
		return b
	}
	b.Version = info.Main.Version
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	// Go may have derived the version from the commit, which is compared itself.
	b.Version = strings.TrimSuffix(b.Version, "+dirty")
	return b
}

// sameSource reports whether two builds are of the same source, as far as they know. Two builds of a modified work tree
// cannot be told apart.
func (b Build) sameSource(other Build) bool {
	if b.Commit != "" || other.Commit != "" {
		return b.Commit == other.Commit && b.Modified == other.Modified
	}
	return b.Version == other.Version
}

func (b Build) String() string {
	commit := b.Commit
	if commit == "" {
		commit = "unknown"
	}
	if b.Modified {
		commit += ", modified"
	}
	return fmt.Sprintf("kvferry %s, commit %s, %s %s", b.Version, commit, b.Go, b.Platform)
}
