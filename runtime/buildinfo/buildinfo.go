// Package buildinfo describes the build of the running program: its version, its commit and what it was compiled with.
//
// The file VERSION has the version that this source will be released as. All else that states a version derives it from
// that file: this package, the Python package, and what `make release` makes.
package buildinfo

import (
	"cmp"
	_ "embed" // for VERSION
	"fmt"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
)

//go:embed VERSION
var version string

// stampedCommit is set by the Makefile's linker flags. Builds without the flags get the commit from Go, if they were
// made in a repository.
var stampedCommit string

// module is the path of this module, as builds name it.
const module = "github.com/kvferry/kvferry"

// Release returns the version that this source will be released as, for example "0.1.0".
func Release() string { return strings.TrimSpace(version) }

// A Build describes the source of a program.
type Build struct {
	// Version is Release() for a build of the commit that has that tag. Builds of other commits have a version that
	// semantic versioning sorts before the release, and later commits after earlier ones, for example
	// "0.1.0-dev.20261130184436+cfe28f06ba13" with the time of the commit in UTC. If this module is a dependency of the
	// program, it is the version of the dependency.
	Version string `json:"version"`
	Commit  string `json:"commit"` // empty if the program does not know it
	// Modified is true if the work tree had changes. It is false if that is not known.
	Modified bool   `json:"modified"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// Current returns the build of the running program.
func Current() Build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
		info.Main.Path = module
	}
	b := describe(info, stampedCommit)
	b.Go, b.Platform = runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH
	return b
}

// releaseTag matches the tags of releases. Between tags, Go derives other versions from the commit.
var releaseTag = regexp.MustCompile(`^v\d+\.\d+\.\d+(-(alpha|beta|rc)[.\d]*)?$`)

func describe(info *debug.BuildInfo, stamped string) (b Build) {
	if info.Main.Path != module {
		for _, dep := range info.Deps {
			if dep.Path == module {
				b.Version = strings.TrimPrefix(dep.Version, "v")
			}
		}
		b.Version = cmp.Or(b.Version, Release()+"-dev")
		return b
	}
	b.Commit = stamped
	var committed string
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			committed = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	if tag := info.Main.Version; releaseTag.MatchString(tag) && !b.Modified {
		b.Version = strings.TrimPrefix(tag, "v")
		return b
	}
	b.Version = Release() + "-dev"
	if digits := strings.NewReplacer("-", "", ":", "", "T", "", "Z", "").Replace(committed); len(digits) == len("20060102150405") {
		b.Version += "." + digits
	}
	if b.Commit != "" {
		b.Version += "+" + b.Commit[:min(12, len(b.Commit))]
		if b.Modified {
			b.Version += ".modified"
		}
	}
	return b
}

// SameSource reports whether two builds are of the same source, as far as they know. Two builds of a modified work tree
// cannot be told apart.
func (b Build) SameSource(other Build) bool {
	if b.Commit != "" || other.Commit != "" {
		return b.Commit == other.Commit && b.Modified == other.Modified
	}
	return b.Version == other.Version
}

func (b Build) String() string {
	commit := cmp.Or(b.Commit, "unknown")
	if b.Modified {
		commit += ", modified"
	}
	return fmt.Sprintf("kvferry %s, commit %s, %s %s", b.Version, commit, b.Go, b.Platform)
}
