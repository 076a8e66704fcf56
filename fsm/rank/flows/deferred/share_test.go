package deferred

import (
	"testing"

	"github.com/kvferry/kvferry/fsm/rank/memory/store"
)

// A sender that offers without end leaves as much of the tables as it has (S18): of eight offers the
// first sender gets four, and another two of the rest.
func TestNoSenderKeepsMoreThanItLeaves(t *testing.T) {
	d := New(Settings{OffersMax: 8}, 3)
	s := store.New(store.Config{
		Settings: store.Settings{LocationsMax: 100, ClaimsMax: 1, ClaimTTL: 1}, Entries: 100, Pages: 1, Classes: 3,
	})
	take := func(class int) (n int) {
		for d.HasRoom(&s, class, 1) {
			d.AddOffer(Offer{Class: class, Operation: uint64(n + 1)}, nil)
			n++
		}
		return n
	}
	if first, second := take(1), take(2); first != 4 || second != 2 {
		t.Fatalf("the first sender has %d offers of eight, the second %d; want 4 and 2", first, second)
	}
	if d.HasRoom(&s, 2, 101) {
		t.Fatal("more chunks than there are locations")
	}
}
