package said

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/fsm/rank/memory"
)

var (
	diagram = regexp.MustCompile("(?s)```mermaid\n(.*?)```")
	arrow   = regexp.MustCompile(`^\s*(\S+) --> (\S+)(?: : ([^:;]+))?$`) // Mermaid ends a cause at either.
)

// drawn are the states in the diagrams of docs/states.md, each with the lines of its arrows.
func drawn(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, block := range diagram.FindAllStringSubmatch(read(t, "docs/states.md"), -1) {
		for _, line := range strings.Split(strings.TrimSpace(block[1]), "\n")[1:] {
			m := arrow.FindStringSubmatch(line)
			if m == nil {
				t.Errorf("docs/states.md draws %q, want from --> to : cause", line)
				continue
			}
			if m[3] == "" && m[1] != "[*]" {
				t.Errorf("docs/states.md does not say what causes %q", line)
			}
			all[m[1]], all[m[2]] = append(all[m[1]], line), append(all[m[2]], line)
		}
	}
	delete(all, "[*]")
	return all
}

// states are the names that the diagrams must have: of each situation of a rank, and of what a page may be under. Two
// rooms that have one name each say which they mean.
func states() []string {
	rooms := map[string][]string{} // of each name
	for _, name := range rank.SituationNames() {
		room, what, ok := strings.Cut(name, "'s ")
		if !ok {
			room, what = "", name
		}
		what = strings.TrimPrefix(what, "delivered ") // They go on as before.
		if what != "gone" && what != "no link" && !slices.Contains(rooms[what], room) {
			rooms[what] = append(rooms[what], room)
		}
	}
	var names []string
	for what, of := range rooms {
		for _, room := range of {
			name := what
			if len(of) > 1 {
				name = room + " " + what
			}
			names = append(names, strings.ReplaceAll(name, " ", "_"))
		}
	}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[memory.State]()) {
		if field.Name != "Generation" { // Its number, and nothing that it is under.
			names = append(names, "page_"+strings.ToLower(field.Name))
		}
	}
	return names
}

// Each state of the code is in a diagram, and no other but the lease's, which is a part of its put's.
func TestStatesAreDrawn(t *testing.T) {
	have, want := drawn(t), states()
	if len(want) < 40 {
		t.Fatalf("only %d states found", len(want))
	}
	for _, name := range want {
		if have[name] == nil {
			t.Errorf("no diagram of docs/states.md has %q: draw it, with what leads to it and away", name)
		}
	}
	for name, lines := range have {
		if !slices.Contains(want, name) && !strings.HasPrefix(name, "lease_") {
			t.Errorf("docs/states.md draws %q, which no code has:\n%s", name, strings.Join(lines, "\n"))
		}
	}
}
