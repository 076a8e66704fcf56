package plane

import (
	"errors"
	"os"
	goruntime "runtime"
	"syscall"
	"testing"
)

// fillSink ignores events.
type fillSink struct{ Sink }

func countFaults(tb testing.TB) int64 {
	var r syscall.Rusage
	if err := syscall.Getrusage(1, &r); err != nil { // RUSAGE_THREAD
		tb.Fatal(err)
	}
	return r.Minflt
}

// After a pool's page tables were filled, the first stores into its pages do not fault. A pool with Overcommit is not
// filled.
func TestPoolsAreFilled(t *testing.T) {
	const pages, pageBytes = 64, 64 << 10
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	for _, overcommit := range []bool{false, true} {
		pool, err := NewPool(PoolConfig{Pages: pages, PageBytes: pageBytes, Sink: fillSink{}, Overcommit: overcommit})
		if err != nil {
			t.Fatal(err)
		}
		if !overcommit {
			<-pool.filler.ended
			if err := populateTables(pool.pagesMem[:1]); err != nil {
				t.Skipf("this kernel fills no page tables: %v", err)
			}
		} else if pool.filler != nil {
			t.Error("a pool that is taken when it is touched is filled")
		}
		all, before := pages*pageBytes/os.Getpagesize(), countFaults(t)
		for at := 0; at < len(pool.pagesMem); at += os.Getpagesize() {
			pool.pagesMem[at] = 1
		}
		if n := countFaults(t) - before; (n < int64(all)/2) == overcommit {
			t.Errorf("overcommit %v: %d faults in %d pages of the host", overcommit, n, all)
		}
		if err := pool.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A pool is unmapped only when nothing fills its page tables any more.
func TestCloseEndsFilling(t *testing.T) {
	pool, err := NewPool(PoolConfig{Pages: 1, PageBytes: 4096, Sink: fillSink{}})
	if err != nil {
		t.Fatal(err)
	}
	pool.filler.stopAndWait()
	begun, ended := make(chan struct{}), make(chan struct{})
	pool.filler = &tableFiller{ended: make(chan struct{})}
	go func() {
		defer close(pool.filler.ended)
		for close(begun); !pool.filler.stopped.Load(); {
			goruntime.Gosched()
		}
		if pool.pagesMem == nil {
			t.Error("it is unmapped, and its page tables are still being filled")
		}
	}()
	<-begun
	go func() {
		defer close(ended)
		if err := pool.Close(); err != nil {
			t.Error(err)
		}
	}()
	<-ended
	<-pool.filler.ended
}

// Closing a pool waits for one part of the filling at most.
func TestFillingEnds(t *testing.T) {
	begun, goOn, pieces := make(chan struct{}), make(chan struct{}), 0
	f := startTableFiller(make([]byte, 3*fillBytes), func(b []byte) error {
		if pieces++; pieces == 1 {
			close(begun)
			<-goOn
		}
		return nil
	})
	<-begun
	f.stopped.Store(true)
	close(goOn)
	f.stopAndWait()
	if pieces != 1 {
		t.Errorf("%d pieces were filled", pieces)
	}
	pieces = 0
	f = startTableFiller(make([]byte, 2*fillBytes+1), func(b []byte) error { pieces += len(b); return nil })
	<-f.ended
	if f.stopAndWait(); pieces != 2*fillBytes+1 {
		t.Errorf("%d bytes were filled", pieces)
	}
	pieces = 0
	f = startTableFiller(make([]byte, 2*fillBytes), func([]byte) error { pieces++; return errors.New("an older kernel") })
	<-f.ended
	if pieces != 1 {
		t.Errorf("an error is asked for %d times", pieces)
	}
}

// BenchmarkFirstTouch stores one byte into each host page of an unused pool of 64 MiB, with and without filling.
func BenchmarkFirstTouch(b *testing.B) {
	for _, filled := range []bool{true, false} {
		name := "filled"
		if !filled {
			name = "faulting"
		}
		b.Run(name, func(b *testing.B) {
			for range b.N {
				b.StopTimer()
				pool, err := NewPool(PoolConfig{Pages: 1024, PageBytes: 64 << 10, Sink: fillSink{}})
				if err != nil {
					b.Fatal(err)
				}
				if <-pool.filler.ended; !filled {
					const madvDontNeed = 4 // The memory belongs to the file, and stays allocated.
					if err := syscall.Madvise(pool.pagesMem, madvDontNeed); err != nil {
						b.Fatal(err)
					}
				}
				b.StartTimer()
				for at := 0; at < len(pool.pagesMem); at += os.Getpagesize() {
					pool.pagesMem[at] = 1
				}
				b.StopTimer()
				if err := pool.Close(); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}
