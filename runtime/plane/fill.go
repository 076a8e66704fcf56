package plane

import (
	"sync/atomic"
	"syscall"
)

// A filling fills the page tables of a pool's mapping in the background. The memory behind a pool is taken when it is
// made, but each page of the host still costs a fault when it is first stored into, some microseconds each: a transfer
// into pages that were never used takes several times as long as the next one.
type filling struct {
	over atomic.Bool
	done chan struct{} // closed when the goroutine has ended
}

const (
	// fillBytes is how much is filled with one call: Close waits for that, and so does a mapping of another part of the
	// process.
	fillBytes = 2 << 20
	// madvPopulateWrite is of Linux's mman-common.h, since 5.14.
	madvPopulateWrite = 23
)

// startFilling fills by calls of piece, until one fails.
func startFilling(mem []byte, piece func([]byte) error) *filling {
	f := &filling{done: make(chan struct{})}
	go func() {
		defer close(f.done)
		for len(mem) > 0 && !f.over.Load() {
			n := min(len(mem), fillBytes)
			if piece(mem[:n]) != nil {
				return // An older kernel: pages fault when they are touched.
			}
			mem = mem[n:]
		}
	}()
	return f
}

func fillTables(mem []byte) error { return syscall.Madvise(mem, madvPopulateWrite) }

// end returns when nothing is filled any more.
func (f *filling) end() {
	if f != nil {
		f.over.Store(true)
		<-f.done
	}
}
