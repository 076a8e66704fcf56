package receiver

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/engine"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/store"
)

// A sender that offers without end leaves as much of the tables as it has (S18): of eight offers the
// first sender gets four, and another two of the rest.
func TestNoSenderKeepsMoreThanItLeaves(t *testing.T) {
	d := newDeferred(deferredConfig{offersMax: 8}, 3)
	s := store.New(store.Config{Entries: 100, Places: 100, Pages: 1, Claims: 1, Classes: 3, TTL: 1})
	take := func(class int) (n int) {
		for d.mayKeep(&s, class, 1) {
			d.keep(deferredOffer{class: class, operation: uint64(n + 1)}, nil)
			n++
		}
		return n
	}
	if first, second := take(1), take(2); first != 4 || second != 2 {
		t.Fatalf("the first sender has %d offers of eight, the second %d; want 4 and 2", first, second)
	}
	if d.mayKeep(&s, 2, 101) {
		t.Fatal("more chunks than there are places")
	}
}

// A fetch whose time is over in the step in which its last chunk comes says so: nobody was out of reach, nothing is missing.
func TestFetchThatIsOverAsItsChunksCome(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Pipeline.FetchesMax, c.FetchTimeout = 4, effects.Second })
	who := r.guest(1)
	r.ask(who, keysOf("a"), nil)
	fetch := func(names ...string) effects.Ticket {
		r.tickets++
		ticket := r.tickets
		r.do(func(v *env.Env) { r.r.OnFetch(v, &r.links, ticket, &engine.Fetch{Keys: keysOf(names...)}) })
		return ticket
	}
	here, part := fetch("a"), fetch("a", "b")
	r.land(r.grants[0], r.grants[0].Pages)
	r.advance(effects.Second)
	for ticket, want := range map[effects.Ticket]effects.Code{here: effects.Expired, part: effects.NotFound} {
		if d, ok := r.outcomes[ticket]; !ok || d.Code != want {
			t.Errorf("ticket %d: %+v, want %v", ticket, d, want)
		}
	}
}
