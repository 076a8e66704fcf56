package rank

import (
	"os"
	"regexp"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/register"
)

var rareMark = regexp.MustCompile(`(?m)^(?:rare|never) mark (register/\S+) `)

// rareMarksAreMet demands of transcripts which marks of registered blocks the simulator may not meet.
func rareMarksAreMet(t *testing.T, met map[effects.Mark]bool) {
	t.Helper()
	expected, err := os.ReadFile("../../sim/testdata/coverage.txt")
	if err != nil {
		t.Fatal(err)
	}
	rare := map[string]bool{}
	for _, x := range rareMark.FindAllSubmatch(expected, -1) {
		rare[string(x[1])] = true
	}
	if len(rare) == 0 {
		t.Fatal("no mark of registrations is rare")
	}
	for _, m := range effects.NameMarks(nil, "register", register.Marks) {
		if rare[m.Name] && !met[m.Mark] {
			t.Errorf("no transcript meets %s, and the simulator may not", m.Name)
		}
	}
}
