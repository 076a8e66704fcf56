package runtime

import (
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane"
)

// sleepMax limits how long the loop sleeps before a deadline. Go's timers stop while the system is suspended, and the
// machine's clock does not: after a suspend the loop is late by at most sleepMax.
const sleepMax = time.Second

// now returns the time of the machines' clock, CLOCK_BOOTTIME, which includes system suspend. The time never goes
// back.
func now() effects.Time { return plane.Now() }

// logClockSetback logs that the system's clock went back. The loop logs only the first setback.
func (n *Node) logClockSetback() {
	n.log.Warn("this machine's clock went back, as in a process that was restored from a snapshot. Ours goes on "+
		"from where it was, so time that passed meanwhile is not counted: leases of peers may be over before we "+
		"know. Restart this node, and do not restore it", "clock", "CLOCK_BOOTTIME")
}
