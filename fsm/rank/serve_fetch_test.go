package rank

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
)

// A fetch whose time is over in the step in which its last chunk comes says so: nobody was out of reach, nothing is
// missing.
func TestFetchExpiresAsChunksArrive(t *testing.T) {
	r := newServing(t, func(c *Config) { c.FetchesMax, c.FetchTimeout = 4, effects.Second })
	who := r.connectPeer(1)
	r.requestPages(who, keysOf("a"), nil)
	fetch := func(names ...string) effects.Ticket {
		return r.command(&engine.Fetch{Keys: keysOf(names...)})
	}
	here, part := fetch("a"), fetch("a", "b")
	r.now = r.now.Add(effects.Second)
	r.landPages(r.grants[0], r.grants[0].Pages)
	for ticket, want := range map[effects.Ticket]effects.Code{here: effects.Expired, part: effects.NotFound} {
		if d, ok := r.outcomes[ticket]; !ok || d.Code != want {
			t.Errorf("ticket %d: %+v, want %v", ticket, d, want)
		}
	}
}
