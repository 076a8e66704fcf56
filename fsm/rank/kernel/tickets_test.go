package kernel

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
)

// Tickets find what is open, by number, and nothing that has ended.
func TestTickets(t *testing.T) {
	x := NewTickets(3)
	for i := range effects.Ticket(3) {
		x.Add(i+1, Ref{Kind: uint8(i)})
	}
	x.Remove(2)
	for i, want := range []uint8{0, 0, 2} {
		ref := x.Find(effects.Ticket(i + 1))
		if ref.Kind != want {
			t.Errorf("ticket %d is of kind %d, want %d", i+1, ref.Kind, want)
		}
	}
}
