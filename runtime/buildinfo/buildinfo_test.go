package buildinfo

import (
	"regexp"
	"runtime/debug"
	"testing"
)

func TestRelease(t *testing.T) {
	if !regexp.MustCompile(`^\d+\.\d+\.\d+$`).MatchString(Release()) {
		t.Errorf("VERSION has %q, want three numbers", Release())
	}
}

// A build says what Go and the linker flags tell it, and only a clean build of a tag has a release's version.
func TestDescribe(t *testing.T) {
	const (
		commit = "cfe28f06ba13ac43e8f969ffffc11510ed914f93"
		other  = "1111111111111111111111111111111111111111"
		time   = "2026-11-30T18:44:36Z"
	)
	in := func(path, version string, settings ...string) *debug.BuildInfo {
		info := &debug.BuildInfo{Main: debug.Module{Path: path, Version: version}}
		for i := 0; i < len(settings); i += 2 {
			info.Settings = append(info.Settings, debug.BuildSetting{Key: settings[i], Value: settings[i+1]})
		}
		return info
	}
	dependency := in("example.com/engine", "(devel)")
	dependency.Deps = []*debug.Module{{Path: "example.com/other", Version: "v9.9.9"}, {Path: module, Version: "v0.1.0"}}
	dev := Release() + "-dev"
	for _, c := range []struct {
		name    string
		info    *debug.BuildInfo
		stamped string
		want    Build
	}{
		{"a tag", in(module, "v0.1.0", "vcs.revision", commit, "vcs.time", time, "vcs.modified", "false"), other,
			Build{Version: "0.1.0", Commit: commit}},
		{"a candidate", in(module, "v0.2.0-rc.1"), "", Build{Version: "0.2.0-rc.1"}},
		{"a commit", in(module, "v0.0.0-20261130184436-cfe28f06ba13", "vcs.revision", commit, "vcs.time", time), "",
			Build{Version: dev + ".20261130184436+cfe28f06ba13", Commit: commit}},
		{"a tag with changes", in(module, "v0.1.0+dirty", "vcs.revision", commit, "vcs.time", time, "vcs.modified", "true"), "",
			Build{Version: dev + ".20261130184436+cfe28f06ba13.modified", Commit: commit, Modified: true}},
		{"no repository, a flag", in(module, "(devel)"), commit, Build{Version: dev + "+cfe28f06ba13", Commit: commit}},
		{"nothing", in(module, "(devel)"), "", Build{Version: dev}},
		{"a dependency", dependency, commit, Build{Version: "0.1.0"}},
		{"a dependency without a version", in("example.com/engine", ""), commit, Build{Version: dev}},
	} {
		if got := describe(c.info, c.stamped); got != c.want {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestSameSource(t *testing.T) {
	a := Build{Version: "0.1.0", Commit: "a"}
	for _, c := range []struct {
		other Build
		want  bool
	}{
		{a, true}, {Build{Version: "0.1.0", Commit: "b"}, false}, {Build{Version: "0.1.0"}, false},
		{Build{Version: "0.2.0", Commit: "a"}, true}, {Build{Version: "0.1.0", Commit: "a", Modified: true}, false},
	} {
		if got := a.SameSource(c.other); got != c.want {
			t.Errorf("%v and %v: %t", a, c.other, got)
		}
	}
	if !(Build{Version: "1"}).SameSource(Build{Version: "1"}) {
		t.Error("two builds of one version that know no commit differ")
	}
}
