package sim

import (
	"slices"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/world"
)

// TestActiveLists: every object that can still change is in its active list, in order, and most of the remaining
// objects are not.
func TestActiveLists(t *testing.T) {
	p := manyFaultsPlan()
	w, err := newTrial(Options{}, &p)
	if err != nil {
		t.Fatal(err)
	}
	looks := 0
	w.RunUntil(int64(2*effects.Second), func() bool {
		if looks++; looks%50 != 0 {
			return t.Failed()
		}
		conns := func(c *world.Conn) bool { return c.Closed && !c.HasParked() }
		compareLive(t, "connections", w.Conns, w.Active.Conns.Items, conns)
		compareLive(t, "transfers", w.Transfers, w.Active.Transfers.Items, (*world.Transfer).IsOver)
		for _, x := range w.Transfers {
			// Code that iterates over transfers acts only on transfers of these kinds.
			acted := !x.Reported || x.CopyStarted && (!x.Ended || !x.Settled) || x.InFlight > 0 || x.LocalInUse || len(x.StoresLeft) > 0
			if acted && x.IsOver() {
				t.Errorf("transfer %d is taken to be over, and somebody will look for it", x.ID)
			}
		}
		var tickets []effects.Ticket
		for i := range w.Commands {
			tickets = append(tickets, effects.Ticket(i+1))
		}
		over := func(t effects.Ticket) bool { return w.Commands[t-1].Finished && !w.Commands[t-1].HoldsMemory }
		compareLive(t, "commands", tickets, w.OpenCommands.Items, over)
		return t.Failed()
	})
	if w.Failure != nil {
		t.Fatal(w.Failure)
	}
	if all, some := len(w.Commands), len(w.OpenCommands.Items); looks < 1000 || some > all/2 {
		t.Errorf("after %d deliveries %d of %d commands are still looked at", looks, some, all)
	}
}

// compareLive compares the elements of all that are not over with the elements of the list that are not over.
func compareLive[T comparable](t *testing.T, what string, all, some []T, over func(T) bool) {
	t.Helper()
	want, got := slices.DeleteFunc(slices.Clone(all), over), slices.DeleteFunc(slices.Clone(some), over)
	if !slices.Equal(want, got) {
		t.Errorf("%d %s live, the list of those has %d: %v and %v", len(want), what, len(got), want, got)
	}
}
