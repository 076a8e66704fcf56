package rank

import (
	"slices"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/protocol"
)

// The puts of a batch in parts are taken together or not at all, so that a request never ends without one of them.
func TestPartsAreAllOrNothing(t *testing.T) {
	w := newWorkers(t, "parts", 8) // Of which 16 puts may be open.
	nobody := engine.Peer{Host: "nobody", InitPort: 1, AllocPort: 2}
	open := func(n int) { // Puts that go nowhere.
		for range n {
			w.ticket++
			w.step(0, &effects.Command{Ticket: w.ticket, Body: &engine.Put{
				Peer: nobody, Keys: w.keys[:1], Pages: w.pages[:1], Layout: layout, LastChunkTokens: 4,
			}})
		}
	}
	parts := func() (codes []effects.Code) {
		first := w.ticket + 1
		for i := range 4 {
			p := engine.Put{
				Peer: nobody, Request: []byte("r"), Keys: w.keys[i : i+1], Pages: w.pages[i : i+1], Layout: layout,
				LastChunkTokens: 4, Last: i == 3,
			}
			if p.Follow = 3; i > 0 {
				p.Follow, p.First = 0, first
			}
			w.ticket++
			w.last[0] = effects.Deliver{}
			w.step(0, &effects.Command{Ticket: w.ticket, Body: &p})
			if w.last[0].Ticket == w.ticket {
				codes = append(codes, w.last[0].Code)
			}
		}
		return codes
	}
	open(13)
	if codes, s := parts(), w.ranks[0].Stats(); !slices.Equal(codes, slices.Repeat([]effects.Code{effects.TooMany}, 4)) ||
		s.Puts != 13 || s.Requests != 0 {
		t.Errorf("with room for three of four: %v, %d puts, %d requests", codes, s.Puts, s.Requests)
	}
	w = newWorkers(t, "parts", 8)
	open(12)
	if codes, s := parts(), w.ranks[0].Stats(); len(codes) != 0 || s.Puts != 16 || s.Requests != 1 {
		t.Errorf("with room for all: %v, %d puts, %d requests", codes, s.Puts, s.Requests)
	}
}

// A batch is as large as its messages may be, in keys and in bytes: what a put fits is taken, and one key more is not.
func TestPutFits(t *testing.T) {
	for _, c := range []struct {
		name  string
		bytes int
		batch uint32
	}{{"push by keys", 1 << 20, 5}, {"push by bytes", 4096, 1000}, {"pull by keys", 1 << 20, 5}, {"pull by bytes", 4096,
		1000}} {
		w := newWorkers(t, c.name, 200, func(cfg *Config) {
			cfg.Wire = protocol.DefaultLimits()
			cfg.Wire.MessageBytes, cfg.BatchMax = c.bytes, c.batch
		})
		n := w.ranks[0].PutFits(w.keys)
		if n < 5 || n > 100 {
			t.Fatalf("%s: %d chunks fit", c.name, n)
		}
		w.put(n, w.keys, true)
		w.put(n+1, w.keys, false)
		if w.last[0].Code != effects.TooLarge {
			t.Errorf("%s: %d chunks fit, and one more ends as %v", c.name, n, w.last[0].Code)
		}
	}
}
