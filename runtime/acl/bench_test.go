//go:build cgo && linux

package acl

import (
	"fmt"
	"syscall"
	"testing"
	"time"
)

// BenchmarkDo is one hand-over to the context's thread and back: what a batch costs before any call.
func BenchmarkDo(b *testing.B) {
	c := newRig(b).context(ContextOptions{})
	nothing := func(*Thread) error { return nil }
	b.ReportAllocs()
	for b.Loop() {
		if err := c.Do(nothing); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCall is one call into the library and what the binding adds to it: the check of the thread,
// the way through cgo and back. The software NPU takes a lock and counts it.
func BenchmarkCall(b *testing.B) {
	c := newRig(b).context(ContextOptions{})
	s := stream(b, c, StreamOptions{})
	b.ReportAllocs()
	do(b, c, func(t *Thread) error {
		for b.Loop() {
			if err := s.Failure(t); err != nil {
				return err
			}
		}
		return nil
	})
}

// BenchmarkBatch is what the binding does for a batch before the one call: checking all copies, and laying
// their arguments out in C memory.
func BenchmarkBatch(b *testing.B) {
	for _, n := range []uint64{1, 64, 256} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			c := newRig(b).context(ContextOptions{})
			const page = 64
			m, h := device(b, c, n*page), host(b, c, n*page)
			copies := make([]Copy, n)
			for i := range n {
				copies[i] = Copy{m.Range(i*page, page), h.Range(i*page, page)}
			}
			b.ReportAllocs()
			do(b, c, func(t *Thread) error {
				for b.Loop() {
					if _, err := direction(t, copies); err != nil {
						return err
					}
					t.arrange(copies)
				}
				return nil
			})
		})
	}
}

// BenchmarkNotify is a completion from the question to the answer, with nothing to wait for.
func BenchmarkNotify(b *testing.B) {
	c := newRig(b).context(ContextOptions{})
	s := stream(b, c, StreamOptions{})
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

// BenchmarkWaiting waits for a copy that takes 200 ms, as the library can and as an old one makes us, and
// tells how much of a core that took: cpu/wall is the processor's time over the clock's.
func BenchmarkWaiting(b *testing.B) {
	for name, hidden := range map[string][]string{"inside the library": nil,
		"asking with pauses": {"aclrtSynchronizeEventWithTimeout"}} {
		b.Run(name, func(b *testing.B) {
			r := newRig(b, hidden...)
			c := r.context(ContextOptions{})
			s, m, h := stream(b, c, StreamOptions{}), device(b, c, 64), host(b, c, 64)
			r.control("faults done:of=copy,delay=200000")
			var spent, waited time.Duration
			for b.Loop() {
				before, start := processTime(b), time.Now()
				do(b, c, func(t *Thread) error { return s.Copy(t, m.All(), h.All()) })
				if err := settled(b, c, s); err != nil {
					b.Fatal(err)
				}
				spent, waited = spent+processTime(b)-before, waited+time.Since(start)
			}
			b.ReportMetric(spent.Seconds()/waited.Seconds(), "cpu/wall")
		})
	}
}

// processTime is what the process has used of all processors.
func processTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
