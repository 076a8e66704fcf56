package sim

import (
	"slices"
	"testing"

	"github.com/kvferry/kvferry/effects"
)

// TestGoings: all of which anything can still become is in its list, in order, and most of the rest is not.
func TestGoings(t *testing.T) {
	p := manyInTrouble()
	w, err := newWorld(Options{}, &p)
	if err != nil {
		t.Fatal(err)
	}
	looks := 0
	w.runUntil(int64(2*effects.Second), func() bool {
		if looks++; looks%50 != 0 {
			return t.Failed()
		}
		conns := func(c *conn) bool { return c.closed && !c.holds() }
		sameLive(t, "connections", w.conns, w.going.conns.some, conns)
		sameLive(t, "transfers", w.transfers, w.going.transfers.some, (*transfer).over)
		for _, x := range w.transfers {
			// Who walks over transfers looks for one of these.
			acted := !x.reported || x.asked && (!x.ended || !x.settled) || x.flying > 0 || x.reading || len(x.writing) > 0
			if acted && x.over() {
				t.Errorf("transfer %d is taken to be over, and somebody will look for it", x.id)
			}
		}
		var tickets []effects.Ticket
		for i := range w.commands {
			tickets = append(tickets, effects.Ticket(i+1))
		}
		over := func(t effects.Ticket) bool { return w.commands[t-1].over && !w.commands[t-1].held }
		sameLive(t, "commands", tickets, w.going.commands.some, over)
		return t.Failed()
	})
	if w.failure != nil {
		t.Fatal(w.failure)
	}
	if all, some := len(w.commands), len(w.going.commands.some); looks < 1000 || some > all/2 {
		t.Errorf("after %d deliveries %d of %d commands are still looked at", looks, some, all)
	}
}

// sameLive compares those of all that are not over with those of a list that are not.
func sameLive[T comparable](t *testing.T, what string, all, some []T, over func(T) bool) {
	t.Helper()
	want, got := slices.DeleteFunc(slices.Clone(all), over), slices.DeleteFunc(slices.Clone(some), over)
	if !slices.Equal(want, got) {
		t.Errorf("%d %s live, the list of those has %d: %v and %v", len(want), what, len(got), want, got)
	}
}
