package directory

import (
	"time"

	"github.com/kvferry/kvferry/effects"
	core "github.com/kvferry/kvferry/fsm/directory"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
)

// awake checks that a directory does not take its own pause for the silence of a worker: while the process of the
// directory is stopped, no message reaches the directory.
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
			// The directory's clock may drift from the clock by which its process was frozen.
			at, spoke := x.spoke[is].before(&x.clock)
			if lived := x.clock.lived - at; spoke && lived < silence*8/10 {
				c.Fail("%s forgets %s, and was awake for %v since it heard of it", c.NodeName(), is.instance,
					time.Duration(lived))
			}
		})
	})

// clock measures how long a directory was awake, from event to event.
type clock struct {
	events uint64
	last   effects.Time     // time of the last event, by the directory's clock
	frozen effects.Duration // how long the process had been frozen until then
	asleep effects.Duration // time asleep by the directory's own rule: a gap of more than two pulses counts as one pulse
	lived  effects.Duration // upper bound of the time awake, computed from what the world did to the process
}

// pulse is the interval at which a directory checks whether its process was stopped: an eighth of the directory's
// shortest timeout.
const pulse = min(silence, stuck) / 8

// step moves the clock to the next event.
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

// now returns the time that the directory was awake, by the directory's own rule.
func (x *clock) now() effects.Time { return x.last.Add(-x.asleep) }

// spoken records when a directory last received a message from a worker, as time awake. The previous contact is kept
// too, because the directory may first forget the worker and then handle the message, all in one step.
type spoken struct {
	at    effects.Duration
	event uint64 // event of the last contact; 0 if there was none

	was   effects.Duration // the contact before that event
	other uint64
}

// again returns the record after a contact in the present event.
func (s spoken) again(x *clock) spoken {
	if s.event != x.events {
		s.was, s.other = s.at, s.event
	}
	s.at, s.event = x.lived, x.events
	return s
}

// before returns the last contact before the present event, and whether there was such a contact.
func (s spoken) before(x *clock) (effects.Duration, bool) {
	if s.event == x.events {
		return s.was, s.other != 0
	}
	return s.at, s.event != 0
}

// ticks makes a ledger follow the clocks of the directories. These listeners must be the first listeners of the ledger.
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
