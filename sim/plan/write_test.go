package plan

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Write replaces a plan, also a plan of an earlier version, and no other file.
func TestWriteReplacesPlansAlone(t *testing.T) {
	dir := t.TempDir()
	p := New()
	file := filepath.Join(dir, "plan.yaml")
	for range 2 {
		if err := p.Write(file); err != nil {
			t.Fatal(err)
		}
	}
	older := "version: 0\nseed: 7\nsomething_gone: 1\nfaults_end: 0s\n"
	if err := os.WriteFile(file, []byte(older), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := p.Write(file); err != nil {
		t.Error(err)
	}
	for name, text := range map[string]string{
		"compose.yaml": "version: '3'\nservices: {}\n", "node.yaml": "pd_role: sender\n", "notes": "a year of work",
	} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := p.Write(file); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != text {
			t.Errorf("%s is %q now, %v", name, got, err)
		}
	}
}
