package report

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/sim/trace"
)

// WriteFile replaces a page, and no other file.
func TestAPageReplacesPagesAlone(t *testing.T) {
	dir := t.TempDir()
	page, mine := filepath.Join(dir, "page.html"), filepath.Join(dir, "index.html")
	for range 2 {
		if err := WriteFile(page, &trace.Trace{Title: "a run"}); err != nil {
			t.Fatal(err)
		}
	}
	const text = "<!DOCTYPE html>\n<html lang=\"en\">"
	if err := os.WriteFile(mine, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(mine, &trace.Trace{}); err == nil || !strings.Contains(err.Error(), mine) {
		t.Error(err)
	}
	if got, err := os.ReadFile(mine); err != nil || string(got) != text {
		t.Errorf("%q, %v", got, err)
	}
}
