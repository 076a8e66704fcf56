package plane

import (
	"sync"
	"sync/atomic"
	"testing"
)

// A clock that goes back, by a little or to zero, continues from where it was, and its hours are as long as before.
func TestClockContinuesAfterSetback(t *testing.T) {
	var at int64
	c := clock{read: func() int64 { return at }}
	for i, step := range []struct {
		read, want int64
		turns      uint64
	}{{100, 100, 0}, {100, 100, 0}, {250, 250, 0}, {10, 250, 1}, {11, 251, 1}, {1000, 1240, 1},
		{999, 1240, 2}, {0, 1240, 3}, {5, 1245, 3}} {
		at = step.read
		if got := c.now(); got != step.want || c.setbacks.Load() != step.turns {
			t.Errorf("step %d: %d after %d turns, want %d after %d", i, got, c.setbacks.Load(), step.want, step.turns)
		}
	}
}

// An instant that was read before the clock went back is not shifted by the correction that others made after that.
func TestClockDoesNotJump(t *testing.T) {
	at, meanwhile := int64(1000), func() {}
	var c clock
	c.read = func() int64 {
		read, then := at, meanwhile
		meanwhile = func() {}
		then()
		return read
	}
	c.now()
	meanwhile = func() { at = 10; c.now() }
	if got := c.now(); got != 1000 || c.setbacks.Load() != 1 {
		t.Errorf("%d after %d turns", got, c.setbacks.Load())
	}
}

// A goroutine that reads the clock repeatedly never sees it go back or jump, whatever the clock and other goroutines
// do. Each setback is counted; it may be counted more than once only if a goroutine read the clock before it and
// continues after it.
func TestClockIsMonotonicForAllGoroutines(t *testing.T) {
	const turns, readers, looks = 20, 4, 20_000
	var ticks atomic.Int64
	var mu sync.Mutex
	var base int64
	c := clock{read: func() int64 {
		mu.Lock()
		defer mu.Unlock()
		n := ticks.Add(1)
		if n%(readers*looks/turns) == 0 {
			base = n // starts again from zero
		}
		return n - base
	}}
	var wg sync.WaitGroup
	for range readers {
		wg.Go(func() {
			last := int64(-1)
			for range looks {
				now := c.now()
				if now < last {
					t.Errorf("%d after %d", now, last)
					return
				}
				last = now
			}
		})
	}
	wg.Wait()
	if n := c.setbacks.Load(); n < turns-1 || n > turns*readers {
		t.Errorf("%d turns of %d were counted", n, turns)
	}
	if now := c.now(); now > ticks.Load() {
		t.Errorf("it is %d after %d ticks", now, ticks.Load())
	}
}

func BenchmarkNow(b *testing.B) {
	for b.Loop() {
		Now()
	}
}
