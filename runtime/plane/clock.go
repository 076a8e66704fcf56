package plane

import (
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/kvferry/kvferry/effects"
)

// Now reads CLOCK_BOOTTIME, the clock that also counts system suspend. It never goes back, for any goroutine: where
// the system's clock does, as in a process that was restored from a snapshot, it goes on from the newest instant that
// it gave.
func Now() effects.Time { return effects.Time(boottime.now()) }

// ClockTurns is how often the system's clock went back under this process.
func ClockTurns() uint64 { return boottime.turns.Load() }

var boottime = clock{read: readBoottime}

// A clock makes one that only goes on out of one that may go back.
type clock struct {
	read  func() int64
	last  atomic.Int64 // the newest instant that was given
	ahead atomic.Int64 // by how much we are ahead of the system's clock; it only grows
	turns atomic.Uint64

	mu sync.Mutex // held while ahead changes
}

func (c *clock) now() int64 {
	// Both before the clock is read: one that only goes on cannot be before what was given, and what was read before a
	// turn is not counted from after it.
	last, ahead := c.last.Load(), c.ahead.Load()
	t := c.read() + ahead
	if t < last {
		t = c.turn()
	}
	for last < t && !c.last.CompareAndSwap(last, t) {
		last = c.last.Load()
	}
	return t
}

// turn looks again, alone, and if the clock has gone back, goes on from the newest instant.
func (c *clock) turn() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	last, ahead := c.last.Load(), c.ahead.Load()
	read := c.read()
	if read+ahead >= last {
		return read + ahead // Somebody else has noticed.
	}
	c.ahead.Store(last - read)
	c.turns.Add(1)
	return last
}

func readBoottime() int64 {
	var ts syscall.Timespec
	at := uintptr(unsafe.Pointer(&ts))
	if _, _, e := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, at, 0); e != 0 {
		panic("BUG: CLOCK_BOOTTIME cannot be read: " + e.Error()) // Every Linux since 2.6.39 has it.
	}
	return ts.Nano()
}
