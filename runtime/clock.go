package runtime

import (
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane"
)

// wakeMax bounds how long the loop sleeps towards a deadline. Go's timers stop while the machine is
// suspended, the machine's clock does not: after a suspend it is this late at the worst.
const wakeMax = time.Second

// now is the clock of machines: CLOCK_BOOTTIME, which also counts system suspend, and never goes back.
func now() effects.Time { return plane.Now() }

// clockTurned says once that the system's clock went back.
func (n *Node) clockTurned() {
	n.log.Warn("this machine's clock went back, as in a process that was restored from a snapshot. Ours goes on "+
		"from where it was, so time that passed meanwhile is not counted: leases of peers may be over before we "+
		"know. Restart this node, and do not restore it", "clock", "CLOCK_BOOTTIME")
}
