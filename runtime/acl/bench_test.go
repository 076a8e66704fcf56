//go:build cgo && linux

package acl

import (
	"fmt"
	"syscall"
	"testing"
	"time"
)

// BenchmarkDo measures a switch to the context's thread and back: the cost of a batch before any call.
func BenchmarkDo(b *testing.B) {
	c := newRig(b).newContext(ContextOptions{})
	nothing := func(*Thread) error { return nil }
	b.ReportAllocs()
	for b.Loop() {
		if err := c.Do(nothing); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCall measures a call of the library with the overhead of the binding: the check of the thread, and cgo. The
// software NPU takes a lock and counts the call.
func BenchmarkCall(b *testing.B) {
	c := newRig(b).newContext(ContextOptions{})
	s := newStream(b, c, StreamOptions{})
	b.ReportAllocs()
	mustDo(b, c, func(t *Thread) error {
		for b.Loop() {
			if err := s.Failure(t); err != nil {
				return err
			}
		}
		return nil
	})
}

// BenchmarkBatch measures the binding's work for a batch before the call: the checks of all copies, and the layout of
// the arguments in C memory.
func BenchmarkBatch(b *testing.B) {
	for _, n := range []uint64{1, 64, 256} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			c := newRig(b).newContext(ContextOptions{})
			const page = 64
			m, h := allocDevice(b, c, n*page), allocHost(b, c, n*page)
			copies := make([]Copy, n)
			for i := range n {
				copies[i] = Copy{m.Range(i*page, page), h.Range(i*page, page)}
			}
			b.ReportAllocs()
			mustDo(b, c, func(t *Thread) error {
				for b.Loop() {
					if _, err := commonDirection(t, copies); err != nil {
						return err
					}
					t.fillBatch(copies)
				}
				return nil
			})
		})
	}
}

// BenchmarkNotify measures a completion in an idle stream, from the call of Notify to the callback.
func BenchmarkNotify(b *testing.B) {
	c := newRig(b).newContext(ContextOptions{})
	s := newStream(b, c, StreamOptions{})
	outcome := make(chan error, 1)
	ask := func(t *Thread) error { return s.Notify(t, func(err error) { outcome <- err }) }
	for b.Loop() {
		if err := c.Do(ask); err != nil {
			b.Fatal(err)
		}
		if err := <-outcome; err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkWaiting waits for a copy that takes 200 ms, inside the library and, as with an old library, by polling.
// cpu/wall is the processor time divided by the elapsed time.
func BenchmarkWaiting(b *testing.B) {
	for name, hidden := range map[string][]string{"inside the library": nil,
		"asking with pauses": {"aclrtSynchronizeEventWithTimeout"}} {
		b.Run(name, func(b *testing.B) {
			r := newRig(b, hidden...)
			c := r.newContext(ContextOptions{})
			s, m, h := newStream(b, c, StreamOptions{}), allocDevice(b, c, 64), allocHost(b, c, 64)
			r.runCommand("faults done:of=copy,delay=200000")
			var spent, waited time.Duration
			for b.Loop() {
				before, start := processTime(b), time.Now()
				mustDo(b, c, func(t *Thread) error { return s.Copy(t, m.FullRange(), h.FullRange()) })
				if err := awaitSettled(b, c, s); err != nil {
					b.Fatal(err)
				}
				spent, waited = spent+processTime(b)-before, waited+time.Since(start)
			}
			b.ReportMetric(spent.Seconds()/waited.Seconds(), "cpu/wall")
		})
	}
}

// processTime returns the processor time of this process.
func processTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
