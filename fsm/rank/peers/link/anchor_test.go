package link

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
)

// Of what ties a peer's clock to ours the best is kept: neither a message after a pause makes it worse, nor does one
// whose stamps cannot be outlast the next that can.
func TestAnchorProvesTheMost(t *testing.T) {
	const s, ms = int64(effects.Second), int64(effects.Millisecond)
	var a anchor
	peer := int64(1000) * s // What its clock shows when ours shows nothing.
	hear := func(now, echo, clock int64) effects.Time {
		a.addStamps(effects.Time(now), protocol.Stamps{ClockNS: clock, EchoNS: echo}, 1000)
		return a.earliestTime(peer+now, 1000)
	}
	for _, c := range []struct {
		name                    string
		now, echo, clock, loose int64 // from when its word came to the earliest that is proven of it
	}{
		{"a slow handshake", 1000 * ms, 500 * ms, peer + 1000*ms, 500 * ms},
		{"an answer at once", 2000 * ms, 1990 * ms, peer + 2000*ms, 10 * ms},
		{"an offer after ten seconds", 12 * s, 2000 * ms, peer + 12*s, 20 * ms},
		{"an offer that took long, said twice", 13 * s, 3000 * ms, peer + 12*s, 21 * ms},
		{"an echo of what we never said", 14 * s, 15 * s, peer + 14*s, 22 * ms},
	} {
		if got := c.now - int64(hear(c.now, c.echo, c.clock)); got != c.loose {
			t.Errorf("%s: an instant is known to %v, want %v", c.name, effects.Duration(got), effects.Duration(c.loose))
		}
	}
	hear(15*s, 14*s, peer-900*s) // Its clock never showed that; with it all that it says seems to come from the future.
	if got := 16*s - int64(hear(16*s, 15*s, peer+16*s)); got != s {
		t.Errorf("after stamps that were wrong an instant is known to %v, want a second", effects.Duration(got))
	}
}
