package replace_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/sim/internal/replace"
)

func ours(head []byte) bool { return bytes.HasPrefix(head, []byte("ours")) }

func content(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestAFileOfOursIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	for _, text := range []string{"ours 1", "ours 2"} {
		if err := replace.File(path, "the page", []byte(text), ours); err != nil {
			t.Fatal(err)
		}
		if got := content(t, path); got != text {
			t.Errorf("%q, want %q", got, text)
		}
	}
	if left, _ := filepath.Glob(path + "*"); len(left) != 1 {
		t.Errorf("left behind: %q", left)
	}
}

// File changes nothing else: a file of another program, a directory, or a link to such a file.
func TestWhatSomethingElseWroteStays(t *testing.T) {
	dir := t.TempDir()
	notes, link := filepath.Join(dir, "notes"), filepath.Join(dir, "link")
	if err := os.WriteFile(notes, []byte("a year of work"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(notes, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{notes, link, dir} {
		err := replace.File(path, "the page", []byte("ours"), ours)
		if err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if got := content(t, notes); got != "a year of work" {
		t.Errorf("the file is %q now", got)
	}
}

func TestALinkStaysAndItsFileIsWritten(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	if err := os.WriteFile(file, []byte("ours 1"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	if err := replace.File(link, "the page", []byte("ours 2"), ours); err != nil {
		t.Fatal(err)
	}
	if to, err := os.Readlink(link); err != nil || to != file || content(t, file) != "ours 2" {
		t.Errorf("link to %q, %v; the file is %q", to, err, content(t, file))
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}
