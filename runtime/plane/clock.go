package plane

import (
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/kvferry/kvferry/effects"
)

// Now reads CLOCK_BOOTTIME, the clock that also counts while the system is suspended. The result never goes back, for
// any goroutine. If the system's clock goes back, as in a process that was restored from a snapshot, Now goes on from
// the newest instant that it has returned.
func Now() effects.Time { return effects.Time(boottime.now()) }

// ClockSetbacks returns how often the system's clock has gone back under this process.
func ClockSetbacks() uint64 { return boottime.setbacks.Load() }

var boottime = clock{read: readBoottime}

// A clock makes a monotonic clock out of a clock that may go back.
type clock struct {
	read     func() int64
	last     atomic.Int64 // the newest instant that was returned
	ahead    atomic.Int64 // how far we are ahead of the system's clock; only grows
	setbacks atomic.Uint64

	mu sync.Mutex // held while ahead changes
}

func (c *clock) now() int64 {
	// Both are loaded before the clock is read. A clock that does not go back cannot then be before last, and an
	// instant that was read before a setback is not combined with the ahead that was set after it.
	last, ahead := c.last.Load(), c.ahead.Load()
	t := c.read() + ahead
	if t < last {
		t = c.correctSetback()
	}
	for last < t && !c.last.CompareAndSwap(last, t) {
		last = c.last.Load()
	}
	return t
}

// correctSetback compares again under the lock. If the clock has gone back, the result continues from the newest
// instant.
func (c *clock) correctSetback() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	last, ahead := c.last.Load(), c.ahead.Load()
	read := c.read()
	if read+ahead >= last {
		return read + ahead // Another goroutine has corrected the clock.
	}
	c.ahead.Store(last - read)
	c.setbacks.Add(1)
	return last
}

func readBoottime() int64 {
	var ts syscall.Timespec
	at := uintptr(unsafe.Pointer(&ts))
	if _, _, e := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, at, 0); e != 0 {
		panic("BUG: CLOCK_BOOTTIME cannot be read: " + e.Error()) // Every Linux since 2.6.39 has this clock.
	}
	return ts.Nano()
}
