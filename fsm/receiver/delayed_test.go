package receiver

import (
	"testing"

	"github.com/kvferry/kvferry/fsm/store"
	"github.com/kvferry/kvferry/fsm/table"
)

// A sender that offers without end leaves as much of the tables as it has (S18): of eight offers the
// first sender gets four, and another two of the rest.
func TestNoSenderKeepsMoreThanItLeaves(t *testing.T) {
	r := Receiver{offers: table.NewSlab[offered](8), Store: store.New(1, 100, 100, 1, 1), kept: make([]kept, 3)}
	take := func(class int) (n int) {
		for r.mayKeep(class, 1) {
			r.offers.Add()
			r.kept[class].offers++
			n++
		}
		return n
	}
	if first, second := take(1), take(2); first != 4 || second != 2 {
		t.Fatalf("the first sender has %d offers of eight, the second %d; want 4 and 2", first, second)
	}
	if r.mayKeep(2, 101) {
		t.Fatal("more chunks than there are places")
	}
}
