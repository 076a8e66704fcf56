package directory

import (
	"time"

	"github.com/kvferry/kvferry/effects"
	core "github.com/kvferry/kvferry/fsm/directory"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
)

var checkSilenced = oracle.NewCheck("directory:", "silence")

// silenceOracle checks that a directory does not take its own pause for the silence of a worker: while the process of
// the directory is stopped, no message reaches the directory.
var silenceOracle = oracle.New("silence",
	"a directory drops a worker as silent only if the directory was awake for the silence timeout since the worker's last message",
	func(l *oracle.Subscriptions[ledger]) {
		checkLookups(func(*ledger, *directoryLedger, *oracle.Call, *request, *protocol.BatchedP2PLookupRetMsg) {})(l)
		oracle.On(l, func(b *ledger, c *oracle.Call, e *effects.Observe) {
			x := b.directoryOf(c)
			if x == nil || e.Fact != effects.FactDirectory || core.NoteKind(e.ID) != core.WorkerSilent || e.Count >= crowdMinRank {
				return // Messages of the crowd may be refused, so they are no contacts.
			}
			is := workerID{instance: string(e.Why.Name), rank: e.Count}
			// The directory's clock may drift from the clock by which its process was frozen.
			at, spoke := x.contacts[is].beforeStep(&x.clock)
			if !spoke {
				c.CountVoid(checkSilenced)
				return
			}
			c.CountJudged(checkSilenced)
			if lived := x.clock.maxAwake - at; lived < x.limits.Silence*8/10 {
				c.Fail("%s drops %s as silent, and was awake for only %v since the worker's last message", c.NodeName(), is.instance,
					time.Duration(lived))
			}
		})
	})

// awakeClock measures how long a directory was awake, from event to event.
type awakeClock struct {
	pulse      effects.Duration
	steps      uint64
	lastAt     effects.Time     // time of the last event, by the directory's clock
	frozenTime effects.Duration // how long the process had been frozen until then
	asleepTime effects.Duration // time asleep by the directory's own rule: a gap of more than two pulses counts as one pulse
	maxAwake   effects.Duration // upper bound of the time awake, computed from what the world did to the process
}

// setPulse sets the interval at which a directory checks whether its process was stopped: an eighth of the directory's
// shortest timeout.
func (x *awakeClock) setPulse(d *core.Config) {
	x.pulse = d.SyncTimeout
	if d.Silence > 0 {
		x.pulse = min(x.pulse, d.Silence)
	}
	if d.Disconnected > 0 {
		x.pulse = min(x.pulse, d.Disconnected)
	}
	x.pulse /= 8
}

// advance moves the clock to the next event.
func (x *awakeClock) advance(now effects.Time, frozen effects.Duration) {
	gap, frozenSince := now.Sub(x.lastAt), frozen-x.frozenTime
	if x.lastAt == 0 {
		gap = 0
	}
	if gap > 2*x.pulse {
		x.asleepTime += gap - x.pulse
	}
	x.maxAwake += gap - min(gap, max(0, frozenSince-2*x.pulse))
	x.lastAt, x.frozenTime = now, frozen
	x.steps++
}

// awakeNow returns the time that the directory was awake, by the directory's own rule.
func (x *awakeClock) awakeNow() effects.Time { return x.lastAt.Add(-x.asleepTime) }

// lastContact records when a directory last received a message from a worker, as time awake. The previous contact is
// kept too, because the directory may first forget the worker and then handle the message, all in one step.
type lastContact struct {
	at   effects.Duration
	step uint64 // step of the last contact; 0 if there was none

	previousAt   effects.Duration // the contact before that event
	previousStep uint64
}

// recordStep returns the record after a contact in the present event.
func (s lastContact) recordStep(x *awakeClock) lastContact {
	if s.step != x.steps {
		s.previousAt, s.previousStep = s.at, s.step
	}
	s.at, s.step = x.maxAwake, x.steps
	return s
}

// beforeStep returns the last contact before the present event, and whether there was such a contact.
func (s lastContact) beforeStep(x *awakeClock) (effects.Duration, bool) {
	if s.step == x.steps {
		return s.previousAt, s.previousStep != 0
	}
	return s.at, s.step != 0
}

// followClocks makes a ledger follow the clocks of the directories. These listeners must be the first listeners of the
// ledger.
func followClocks(l *oracle.Subscriptions[ledger]) {
	step := func(b *ledger, c *oracle.Call) {
		if x := b.directoryOf(c); x != nil {
			x.clock.advance(c.LocalTime(), c.FrozenTime())
		}
	}
	oracle.On(l, func(b *ledger, c *oracle.Call, _ *effects.Tick) { step(b, c) })
	oracle.On(l, func(b *ledger, c *oracle.Call, _ *effects.Command) { step(b, c) })
	oracle.On(l, func(b *ledger, c *oracle.Call, _ *effects.Received) { step(b, c) })
	oracle.On(l, func(b *ledger, c *oracle.Call, _ *effects.Opened) { step(b, c) })
	oracle.On(l, func(b *ledger, c *oracle.Call, _ *effects.ConnLost) { step(b, c) })
	oracle.On(l, func(b *ledger, c *oracle.Call, _ *effects.Replied) { step(b, c) })
	oracle.On(l, func(b *ledger, c *oracle.Call, _ *effects.Unanswered) { step(b, c) })
	oracle.On(l, func(b *ledger, c *oracle.Call, _ *effects.SendDone) { step(b, c) })
}
