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
	n.log.Warn("the system clock went back, for example because the process was restored from a snapshot. The node's clock "+
		"continues from its last value, so the time in between is not counted, and leases of peers may have expired "+
		"unnoticed. Restart this node, and do not restore it from a snapshot", "clock", "CLOCK_BOOTTIME")
}
