package oracle

import (
	"fmt"
	"testing"
)

// In a sentence a subject is printed as its number or its name.
func TestSentence(t *testing.T) {
	got := fmt.Sprintf("node %d grants page %3d under grant %d for %q of ticket %d", Node(2), Page{2, 7}, Grant{2, 65537},
		Request("r1"), Ticket(9))
	if want := `node 2 grants page   7 under grant 65537 for "r1" of ticket 9`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for _, s := range []Subject{Node(2), Page{2, 7}, Grant{2, 65537}} {
		if s.NodeID() != 2 {
			t.Errorf("%v is of node %d", s, s.NodeID())
		}
	}
	for _, s := range []Subject{Transfer(1), Ticket(1), Link(1), Conn(1), Key(1), Message(1), Request("r1")} {
		if s.NodeID() != NoNode {
			t.Errorf("%v is of node %d", s, s.NodeID())
		}
	}
}
