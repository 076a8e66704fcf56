package epochs

import (
	"errors"
	"slices"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane/framing"
)

// Everything that was pushed is taken once, in order. Messages of the peer are bounded while nobody takes them;
// nothing else is.
func TestInbox(t *testing.T) {
	b := NewInbox()
	var order []int
	note := func(n int) func(effects.Time) { return func(effects.Time) { order = append(order, n) } }
	for round := range 3 {
		order = order[:0]
		b.Push(note(-1))
		for n := range maxMessages {
			if err := b.PushFromPeer(note(n)); err != nil {
				t.Fatalf("round %d, word %d: %v", round, n, err)
			}
		}
		if err := b.PushFromPeer(note(-2)); !errors.Is(err, framing.ErrMalformed) {
			t.Fatalf("round %d: one word too many: %v", round, err)
		}
		b.Push(note(maxMessages))
		select {
		case <-b.Wake():
		default:
			t.Fatal("nobody is woken")
		}
		for _, f := range b.TakeAll() {
			f(1)
		}
		if len(order) != maxMessages+2 || order[0] != -1 || !slices.IsSorted(order) {
			t.Fatalf("round %d: %v", round, order)
		}
	}
	if len(b.TakeAll()) != 0 {
		t.Fatal("it happened twice")
	}
}
