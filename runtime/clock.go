package runtime

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvferry/kvferry/effects"
)

// wakeMax bounds how long the loop sleeps towards a deadline. Go's timers stop while the machine is
// suspended, the machine's clock does not: after a suspend it is this late at the worst.
const wakeMax = time.Second

// now reads CLOCK_BOOTTIME, the clock that also counts system suspend.
func now() effects.Time {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic(fmt.Sprintf("BUG: reading CLOCK_BOOTTIME: %v", err)) // Every Linux since 2.6.39 has it.
	}
	return effects.Time(ts.Nano())
}

// until returns how long to sleep before deadline, at most wakeMax and never less than nothing.
func until(deadline effects.Time) time.Duration {
	return min(max(time.Duration(deadline.Sub(now())), 0), wakeMax)
}
