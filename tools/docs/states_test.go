package docs

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

// drawn returns the states in the diagrams of docs/states.md, each with the lines of its arrows.
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

// states returns the names that the diagrams must have: the situations of a rank and the uses of a page. If two rooms
// have the same name, the room's name precedes it.
func states() []string {
	rooms := map[string][]string{} // rooms by name
	for _, name := range rank.SituationNames() {
		room, what, ok := strings.Cut(name, "'s ")
		if !ok {
			room, what = "", name
		}
		what = strings.TrimPrefix(what, "delivered ") // the same state, after its delivery
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
		if field.Name != "Generation" { // Generation is a number and not a use of a page
			names = append(names, "page_"+strings.ToLower(field.Name))
		}
	}
	return names
}

// The diagrams have exactly the states of the code, and in addition the states of a lease, which is a part of a put.
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
			t.Errorf("docs/states.md draws %q, which the code does not have:\n%s", name, strings.Join(lines, "\n"))
		}
	}
}
