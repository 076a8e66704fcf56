package sharedlib

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const variable = "KVFERRY_TEST_LIBRARY"

// quiet takes away what the machine says about libraries.
func quiet(t *testing.T) {
	for _, name := range []string{variable, "ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"} {
		t.Setenv(name, "")
	}
}

func TestCandidates(t *testing.T) {
	for _, c := range []struct {
		name   string
		option string
		named  string
		home   string
		older  string
		want   []string
	}{
		{name: "nothing set: the loader's search", want: []string{"libnew.so", "libold.so"}},
		{name: "a named library is the only one", option: "/a.so", named: "/b.so", home: "/cann", want: []string{"/a.so"}},
		{name: "then the variable's", named: "/b.so", home: "/cann", want: []string{"/b.so"}},
		{name: "then the loader's, then the toolkit's", home: "/cann", older: "/old", want: []string{
			"libnew.so", "libold.so", "/cann/lib64/libnew.so", "/cann/lib64/libold.so",
			"/cann/" + processorName() + "-linux/lib64/libnew.so", "/cann/" + processorName() + "-linux/lib64/libold.so",
		}},
		{name: "the toolkit by its older variable", older: "/old", want: []string{
			"libnew.so", "libold.so", "/old/lib64/libnew.so", "/old/lib64/libold.so",
			"/old/" + processorName() + "-linux/lib64/libnew.so", "/old/" + processorName() + "-linux/lib64/libold.so",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			quiet(t)
			t.Setenv(variable, c.named)
			t.Setenv("ASCEND_HOME_PATH", c.home)
			t.Setenv("ASCEND_TOOLKIT_HOME", c.older)
			search := Search{Library: c.option, Variable: variable, Names: []string{"libnew.so", "libold.so"}}
			if got := search.Candidates(); !slices.Equal(got, c.want) {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}

func TestToolkitVersion(t *testing.T) {
	quiet(t)
	if got := ToolkitVersion("runtime"); got != "" {
		t.Errorf("got %q without a toolkit", got)
	}
	home := t.TempDir()
	t.Setenv("ASCEND_HOME_PATH", home)
	if got := ToolkitVersion("runtime"); got != "" {
		t.Errorf("got %q of a toolkit without records", got)
	}
	folder := filepath.Join(home, "share", "info", "runtime")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "version.info"), []byte("# comment\nVersion=8.5.0\ntimestamp=1\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	if got := ToolkitVersion("runtime"); got != "8.5.0" {
		t.Errorf("got %q, want 8.5.0", got)
	}
}

func TestTell(t *testing.T) {
	var b strings.Builder
	AppendAttempts(&b, []Attempt{{Library: "a.so", Reason: "no such file"}, {Library: "b.so", Missing: []string{"f", "g"}}})
	if got, want := b.String(), "; tried a.so: no such file; tried b.so: it has no f, g"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// With cgo or without, what cannot be opened has a reason.
func TestOpenOfNothing(t *testing.T) {
	absent := filepath.Join(t.TempDir(), "libabsent.so")
	if l, err := Load(absent); l != nil || err == nil || err.Error() == "" {
		t.Errorf("opened %v, %v", l, err)
	}
}
