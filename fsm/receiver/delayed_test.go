package receiver

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/engine"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/flow"
)

// A fetch whose time is over in the step in which its last chunk comes says so: nobody was out of reach, nothing is missing.
func TestFetchThatIsOverAsItsChunksCome(t *testing.T) {
	r := newRig(t, func(c *flow.RoomsConfig) { c.Pipeline.FetchesMax, c.FetchTimeout = 4, effects.Second })
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
