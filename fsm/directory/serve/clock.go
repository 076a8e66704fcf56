package serve

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/directory"
)

// An awakeClock measures the time during which the directory was running. A process that is stopped, or runs on a
// suspended host, receives nothing: after the process continues, the heartbeats that arrived meanwhile wait in the
// sockets, and workers with broken connections need a moment to reconnect. Therefore time during which the process
// slept does not count as silence of a worker, and package directory receives instants of this clock only.
//
// While the machine knows a worker or has a deadline, the machine requests a Tick after each pulse. A step that
// follows the previous step by more than two pulses then shows that the machine slept in between, and only a single
// pulse of that time is counted. Example: with a silence of 80 s the pulse is 10 s; after an hour of SIGSTOP, a
// worker that sent a heartbeat just before has been silent for 10 s.
type awakeClock struct {
	pulse         effects.Duration
	lastStep      effects.Time     // time of the previous step
	tickRequested bool             // the previous step requested a Tick after a pulse
	uncounted     effects.Duration // time that was not counted
}

// pulsesWithin is the number of pulses in the shortest time after which the directory gives something up. A worker
// sends protocol.HeartbeatsPerTimeout heartbeats during the silence, so that several sleeps between two heartbeats do
// no harm.
const pulsesWithin = 8

func newAwakeClock(c *directory.Config) awakeClock {
	shortest := c.SyncTimeout
	for _, d := range []effects.Duration{c.Silence, c.Disconnected} {
		if d > 0 {
			shortest = min(shortest, d)
		}
	}
	return awakeClock{pulse: max(1, shortest/pulsesWithin)}
}

// recordStep records a step at the instant now, and returns the corresponding instant of the clock.
func (a *awakeClock) recordStep(now effects.Time) effects.Time {
	if gap := now.Sub(a.lastStep); a.tickRequested && gap > 2*a.pulse {
		a.uncounted += gap - a.pulse
	}
	a.lastStep = now
	return now.Add(-a.uncounted)
}

// nextPulse returns, in the driver's time, when the next step is due, as evidence that the machine is running.
func (a *awakeClock) nextPulse() effects.Time { return a.lastStep.Add(a.pulse) }
