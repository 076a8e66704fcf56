package directory

import (
	"time"

	"github.com/kvferry/kvferry/effects"
	core "github.com/kvferry/kvferry/fsm/directory"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
)

// awake: a directory whose process is stopped hears nothing, which is no worker's silence.
var awake = oracle.Of("awake",
	"a directory forgets a worker as silent only when it was awake for the time of a silence since it heard of it",
	func(l *oracle.Listen[book]) {
		keeps(func(*book, *volume, *oracle.Call, *asked, *protocol.BatchedP2PLookupRetMsg) {})(l)
		oracle.On(l, func(b *book, c *oracle.Call, e *effects.Observe) {
			x := b.volume(c)
			if x == nil || e.Fact != effects.FactDirectory || core.NoteKind(e.ID) != core.WorkerSilent {
				return
			}
			is := who{instance: string(e.Why.Name), rank: e.Count}
			// Its clock may drift from the one by which it was frozen.
			at, spoke := x.spoke[is].before(&x.clock)
			if lived := x.clock.lived - at; spoke && lived < silence*8/10 {
				c.Fail("%s forgets %s, and was awake for %v since it heard of it", c.NodeName(), is.instance,
					time.Duration(lived))
			}
		})
	})

// A clock follows how long a directory was awake, from one of its events to the next.
type clock struct {
	events uint64
	last   effects.Time     // of the last event, by the directory's clock
	frozen effects.Duration // its process until then
	asleep effects.Duration // by the directory's own rule: a gap of more than two pulses counts as one
	lived  effects.Duration // at the most, by what the world did to the process
}

// pulse is how often a directory looks whether it is awake: an eighth of the shortest time after which it gives
// something up.
const pulse = min(silence, stuck) / 8

func (x *clock) step(now effects.Time, frozen effects.Duration) {
	gap, stood := now.Sub(x.last), frozen-x.frozen
	if x.last == 0 {
		gap = 0
	}
	if gap > 2*pulse {
		x.asleep += gap - pulse
	}
	x.lived += gap - min(gap, max(0, stood-2*pulse))
	x.last, x.frozen = now, frozen
	x.events++
}

// now is the time that the directory was awake, by its own rule.
func (x *clock) now() effects.Time { return x.last.Add(-x.asleep) }

// A spoken is how long a directory had lived when it heard of a worker last. In the step in which it hears of it, it
// may forget first what it knew of it from before.
type spoken struct {
	at    effects.Duration
	event uint64 // in which that was; 0: never

	was   effects.Duration // likewise, before that event
	other uint64
}

func (s spoken) again(x *clock) spoken {
	if s.event != x.events {
		s.was, s.other = s.at, s.event
	}
	s.at, s.event = x.lived, x.events
	return s
}

// before is when it was, before this event; false: it was not.
func (s spoken) before(x *clock) (effects.Duration, bool) {
	if s.event == x.events {
		return s.was, s.other != 0
	}
	return s.at, s.event != 0
}

// ticks has a book follow the clocks of directories. It comes before whatever else a book hears.
func ticks(l *oracle.Listen[book]) {
	step := func(b *book, c *oracle.Call) {
		if x := b.volume(c); x != nil {
			x.clock.step(c.Clock(), c.Frozen())
		}
	}
	oracle.On(l, func(b *book, c *oracle.Call, _ *effects.Tick) { step(b, c) })
	oracle.On(l, func(b *book, c *oracle.Call, _ *effects.Command) { step(b, c) })
	oracle.On(l, func(b *book, c *oracle.Call, _ *effects.Received) { step(b, c) })
	oracle.On(l, func(b *book, c *oracle.Call, _ *effects.Opened) { step(b, c) })
	oracle.On(l, func(b *book, c *oracle.Call, _ *effects.ConnLost) { step(b, c) })
	oracle.On(l, func(b *book, c *oracle.Call, _ *effects.Replied) { step(b, c) })
	oracle.On(l, func(b *book, c *oracle.Call, _ *effects.Unanswered) { step(b, c) })
	oracle.On(l, func(b *book, c *oracle.Call, _ *effects.SendDone) { step(b, c) })
}
