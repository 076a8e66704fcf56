package sim

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestSchedules verifies that each schedule of the push protocol has a row, in order, and that each name in the table
// is a small world, a defect or a transcript.
func TestSchedules(t *testing.T) {
	text, err := os.ReadFile("systems/register/schedules.md")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, s := range Scopes() {
		known[s.Name] = true
	}
	defects, err := os.ReadFile("mutants.yaml")
	if err != nil {
		t.Fatal(err)
	}
	isDefect := func(name string) bool { return strings.Contains(string(defects), "\n- name: "+name+"\n") }
	there := func(path string) bool {
		_, err := os.Stat(path)
		return err == nil
	}
	names := regexp.MustCompile("`((?:leased-)?register(?:[-_][a-z_-]+)?)`")
	next := 1
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "| X") {
			continue
		}
		if !strings.HasPrefix(line, fmt.Sprintf("| X%d ", next)) {
			t.Errorf("want the row of X%d: %s", next, line)
		}
		next++
		found := names.FindAllStringSubmatch(line, -1)
		if len(found) == 0 && !strings.Contains(line, "no meaning") {
			t.Errorf("nothing shows it, and nothing says why: %s", line)
		}
		for _, m := range found {
			if !known[m[1]] && !isDefect(m[1]) && !there("../fsm/rank/testdata/"+m[1]+".txt") {
				t.Errorf("there is no small world, defect or transcript %s: %s", m[1], line)
			}
		}
	}
	if next != 31 {
		t.Errorf("%d rows, want 30", next-1)
	}
}
