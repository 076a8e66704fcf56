package plane

import (
	"sync/atomic"
	"syscall"
)

// A tableFiller fills the page tables of a pool's mapping in the background. The memory of a pool is allocated when
// the pool is made, but the first store into each page of the host still costs a page fault of some microseconds: a
// transfer into pages that were never used would take several times as long as the next transfer.
type tableFiller struct {
	stopped atomic.Bool
	ended   chan struct{} // closed when the goroutine has ended
}

const (
	// fillBytes is the size of the part that a call fills. Close waits for at most one call, and so does another
	// goroutine that maps memory of the process meanwhile.
	fillBytes = 2 << 20
	// madvPopulateWrite is MADV_POPULATE_WRITE of Linux's mman-common.h, available since Linux 5.14.
	madvPopulateWrite = 23
)

// startTableFiller starts to fill mem part by part with populate, until a call fails.
func startTableFiller(mem []byte, populate func([]byte) error) *tableFiller {
	f := &tableFiller{ended: make(chan struct{})}
	go func() {
		defer close(f.ended)
		for len(mem) > 0 && !f.stopped.Load() {
			n := min(len(mem), fillBytes)
			if populate(mem[:n]) != nil {
				// An older kernel. Pages then fault when they are first touched.
				return
			}
			mem = mem[n:]
		}
	}()
	return f
}

func populateTables(mem []byte) error { return syscall.Madvise(mem, madvPopulateWrite) }

// stopAndWait ends the filling and returns when no call is in progress any more.
func (f *tableFiller) stopAndWait() {
	if f != nil {
		f.stopped.Store(true)
		<-f.ended
	}
}
