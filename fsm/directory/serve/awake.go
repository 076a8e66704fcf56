package serve

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/directory"
)

// An awakeClock tells the time that the directory was awake. A process that is stopped, or whose host is suspended,
// hears nothing: when it goes on, the heartbeats that came meanwhile wait in its sockets, and workers whose connections
// broke need a moment to come back. So time in which it was asleep is not time in which a worker was silent, and the
// package directory is told instants of this clock alone.
//
// The machine asks for a Tick each pulse while it knows a worker or has anything to give up. Then a step that comes more
// than two pulses after the one before it says that the machine was asleep in between, of which a single pulse is
// counted. Example: with a silence of 80 s the pulse is 10 s; after an hour of SIGSTOP a worker that sent a heartbeat
// just before was silent for 10 s.
type awakeClock struct {
	pulse  effects.Duration
	last   effects.Time     // of the step before
	ticks  bool             // that step asked for another one within a pulse
	asleep effects.Duration // what was not counted
}

// pulsesWithin is how many pulses there are in the shortest time after which the directory gives something up. A worker
// sends protocol.HeartbeatsWithin heartbeats in its silence, so several sleeps between two of them are survived.
const pulsesWithin = 8

func newAwakeClock(c *directory.Config) awakeClock {
	shortest := c.Patience
	for _, d := range []effects.Duration{c.Silence, c.Parted} {
		if d > 0 {
			shortest = min(shortest, d)
		}
	}
	return awakeClock{pulse: max(1, shortest/pulsesWithin)}
}

// step takes the instant of a step and returns the time that the directory was awake until then.
func (a *awakeClock) step(now effects.Time) effects.Time {
	if gap := now.Sub(a.last); a.ticks && gap > 2*a.pulse {
		a.asleep += gap - a.pulse
	}
	a.last = now
	return now.Add(-a.asleep)
}

// next returns when a step is due, by the driver's clock, that says that the machine is awake.
func (a *awakeClock) next() effects.Time { return a.last.Add(a.pulse) }
