//go:build cgo && linux

package acl

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Goroutines that move between threads allocate, copy and free on two devices: every call is made on the thread of its
// context.
func TestManyGoroutinesOnTwoDevices(t *testing.T) {
	r := newRig(t)
	n, err := r.lib.DeviceCount()
	if err != nil || n < 2 {
		t.Fatalf("%d devices, %v; want 2 or more", n, err)
	}
	contexts := []*Context{r.newContext(ContextOptions{Device: 0}), r.newContext(ContextOptions{Device: 1, Primary: true})}
	const goroutines, size = 100, 4096 + 17
	failures := make(chan error, goroutines)
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() {
			c, want, got := contexts[g%2], pattern(size, byte(g)), make([]byte, size)
			var m *Memory
			steps := []func(*Thread) error{
				func(t *Thread) (err error) { m, err = t.AllocDevice(size, HugeFirst); return err },
				func(t *Thread) error { return t.Upload(m.FullRange(), want) },
				func(t *Thread) error { return t.Download(got, m.FullRange()) },
				func(t *Thread) error { return m.Close(t) },
			}
			for i, step := range steps {
				runtime.Gosched()
				if err := c.Do(step); err != nil {
					failures <- fmt.Errorf("goroutine %d, step %d: %w", g, i, err)
					return
				}
			}
			if !slices.Equal(got, want) {
				failures <- fmt.Errorf("goroutine %d: other bytes came back", g)
			}
		})
	}
	all.Wait()
	close(failures)
	for err := range failures {
		t.Error(err)
	}
}

// onOwnThread runs f on a separate thread that ends afterwards, together with its thread-local state.
func onOwnThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		f()
	}()
	<-done
}

// A Thread that is kept and used on a different thread must not reach the library, because there the context is missing
// or wrong.
func TestStrayThreadIsRefused(t *testing.T) {
	r := newRig(t)
	c := r.newContext(ContextOptions{})
	s := newStream(t, c, StreamOptions{})
	m := allocDevice(t, c, 64)
	h := allocHost(t, c, 64)
	e := mustMake(t, c, func(t *Thread) (*Event, error) { return t.NewEvent(EventOptions{}) })
	var kept *Thread
	mustDo(t, c, func(t *Thread) error { kept = t; return s.RecordEvent(t, e) })
	before := countCalls(r.readStats())
	onOwnThread(func() {
		for name, use := range map[string]func() error{
			"NewStream":          func() error { _, err := kept.NewStream(StreamOptions{}); return err },
			"NewEvent":           func() error { _, err := kept.NewEvent(EventOptions{}); return err },
			"AllocDevice":        func() error { _, err := kept.AllocDevice(64, HugeFirst); return err },
			"AllocHost":          func() error { _, err := kept.AllocHost(64); return err },
			"MemInfo":            func() error { _, err := kept.MemInfo(); return err },
			"Upload":             func() error { return kept.Upload(m.FullRange(), make([]byte, 64)) },
			"Download":           func() error { return kept.Download(make([]byte, 64), m.FullRange()) },
			"Lent":               func() error { _, err := kept.WrapMemory(OnDevice, m.Address(), 64); return err },
			"Stream.Copy":        func() error { return s.Copy(kept, m.FullRange(), h.FullRange()) },
			"Stream.CopyAll":     func() error { return s.CopyAll(kept, []Copy{{m.FullRange(), h.FullRange()}}) },
			"Stream.Fill":        func() error { return s.Fill(kept, m.FullRange(), 0) },
			"Stream.Record":      func() error { return s.RecordEvent(kept, e) },
			"Stream.Wait":        func() error { return s.WaitEvent(kept, e) },
			"Stream.Synchronize": func() error { return s.Synchronize(kept, longEnough) },
			"Stream.Failure":     func() error { return s.Failure(kept) },
			"Stream.Close":       func() error { return s.Close(kept) },
			"Event.Complete":     func() error { _, err := e.IsComplete(kept); return err },
			"Event.Synchronize":  func() error { return e.Synchronize(kept, longEnough) },
			"Event.Close":        func() error { return e.Close(kept) },
			"Memory.Close":       func() error { return m.Close(kept) },
		} {
			if err := use(); !errors.Is(err, ErrWrongThread) {
				t.Errorf("%s on a stray thread: %v, want ErrStray", name, err)
			}
		}
	})
	if after := countCalls(r.readStats()); after != before {
		t.Errorf("%d calls reached the library from a thread without a context", after-before)
	}
	// The thread of another context has the wrong context.
	other := r.newContext(ContextOptions{Device: 1})
	before = countCalls(r.readStats())
	mustDo(t, other, func(*Thread) error {
		if _, err := kept.AllocDevice(64, HugeFirst); !errors.Is(err, ErrWrongThread) {
			t.Errorf("on another context's thread: %v, want ErrStray", err)
		}
		return nil
	})
	if after := countCalls(r.readStats()); after != before {
		t.Errorf("%d calls reached the library from another context's thread", after-before)
	}
}

// A call from a thread without a context fails in the library, and the error has the text of the thread that failed,
// not of a thread that has failed since.
func TestMessagesBelongToTheirThread(t *testing.T) {
	r := newRig(t)
	c := r.newContext(ContextOptions{})
	bare, other := make(chan error), make(chan error)
	go onOwnThread(func() {
		thread := bindThread(r.lib, c) // bound, but does not enter the context
		defer thread.unbindThread()
		_, err := thread.AllocDevice(64, HugeFirst)
		bare <- err
	})
	failed := wantClass(t, <-bare, Bug)
	if failed == nil || failed.Code != 107002 || failed.Call != "aclrtMalloc" || failed.Message == "" {
		t.Fatalf("without a context: %+v, want 107002 of aclrtMalloc with its text", failed)
	}
	go func() {
		other <- c.Do(func(t *Thread) error { _, err := t.AllocDevice(1<<40, HugeFirst); return err })
	}()
	tooMuch := wantClass(t, <-other, OutOfMemory)
	if tooMuch == nil || tooMuch.Message == failed.Message || !strings.Contains(tooMuch.Args, "size=1099511627776") {
		t.Errorf("out of memory: %+v, after %+v on another thread", tooMuch, failed)
	}
}

// A failing test ends its goroutine by Goexit: neither its caller nor the next caller may wait forever.
func TestDoSurvivesGoexit(t *testing.T) {
	r := newRig(t)
	c, err := r.lib.NewContext(ContextOptions{Primary: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Do(func(*Thread) error { runtime.Goexit(); return nil }); !errors.Is(err, errNoReturn) {
		t.Errorf("got %v", err)
	}
	if err := c.Do(func(*Thread) error { return nil }); !errors.Is(err, ErrClosed) {
		t.Errorf("the thread is gone, and Do answers %v", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}
