//go:build cgo && linux

package acl

import (
	"errors"
	"runtime"
	"strings"
	"testing"
)

// The function of Context.DoBlocking runs with the context, the context's own thread goes on meanwhile, and the
// BlockingThread is invalid afterwards.
func TestApartHasTheContextOnAThreadOfItsOwn(t *testing.T) {
	r := newRig(t)
	c := r.newContext(ContextOptions{Device: 1})
	var kept *BlockingThread
	want := errors.New("from apart")
	err := c.DoBlocking(func(g *BlockingThread) error {
		kept = g
		if err := g.CheckThread(); err != nil || g.Device() != 1 {
			t.Errorf("apart: %v, device %d", err, g.Device())
		}
		// The library knows the context here: an allocation, made with this thread's own calls, succeeds.
		m, err := g.thread.AllocDevice(64, HugeFirst)
		if err != nil {
			t.Error(err)
			return want
		}
		mustDo(t, c, func(own *Thread) error {
			if err := errors.Join(own.CheckThread(), m.Close(own)); err != nil {
				t.Errorf("beside a function apart: %v", err)
			}
			if err := g.CheckThread(); !errors.Is(err, ErrWrongThread) {
				t.Errorf("a guest on the context's thread: %v, want ErrStray", err)
			}
			return nil
		})
		return want
	})
	if !errors.Is(err, want) {
		t.Errorf("got %v", err)
	}
	if err := kept.CheckThread(); !errors.Is(err, ErrWrongThread) || kept.TakeMessage() != "" {
		t.Errorf("a guest that was kept: %v, want ErrStray", err)
	}
}

// Each thread has its own error text, and reading the text clears it.
func TestMessageOfOtherLibrariesFailures(t *testing.T) {
	r := newRig(t)
	c := r.newContext(ContextOptions{})
	if err := c.DoBlocking(func(g *BlockingThread) error {
		// The call stands for a library that calls AscendCL and leaves the text unread.
		if failed := r.npu.FailCall(); failed == 0 {
			t.Error("a device that is not there was set")
		}
		mustDo(t, c, func(own *Thread) error {
			if text := own.TakeMessage(); text != "" {
				t.Errorf("the context's own thread says %q", text)
			}
			return nil
		})
		if text := g.TakeMessage(); text == "" {
			t.Error("the text is lost")
		}
		if text := g.TakeMessage(); text != "" {
			t.Errorf("asked again: %q", text)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// A context with blocking threads refuses to close, and accepts no new function while it is being closed.
func TestCloseAndAbandonMindGuests(t *testing.T) {
	r := newRig(t)
	c, err := r.lib.NewContext(ContextOptions{})
	if err != nil {
		t.Fatal(err)
	}
	entered, leave := make(chan struct{}), make(chan struct{})
	ended, abandoned := make(chan error), make(chan error)
	go func() {
		ended <- c.DoBlocking(func(g *BlockingThread) error {
			close(entered)
			<-leave
			<-c.releasing
			// Abandon waits for this function, so the function must not wait for the context in turn.
			if err := c.Do(func(*Thread) error { return nil }); !errors.Is(err, ErrClosed) {
				t.Errorf("Do in a context that is being left: %v", err)
			}
			return g.CheckThread()
		})
	}()
	<-entered
	if err := c.Close(); !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), "blocking threads=1") {
		t.Errorf("closed under a guest: %v", err)
	}
	go func() { abandoned <- c.Abandon() }()
	close(leave)
	if err := <-ended; err != nil {
		t.Errorf("the guest lost its context: %v", err)
	}
	if err := <-abandoned; err != nil {
		t.Error(err)
	}
	if err := c.DoBlocking(func(*BlockingThread) error { t.Error("it ran"); return nil }); !errors.Is(err, ErrClosed) {
		t.Errorf("apart of a closed context: %v", err)
	}
}

func TestApartSurvivesGoexit(t *testing.T) {
	r := newRig(t)
	c := r.newContext(ContextOptions{})
	if err := c.DoBlocking(func(*BlockingThread) error { runtime.Goexit(); return nil }); !errors.Is(err, errNoReturn) {
		t.Errorf("got %v", err)
	}
}

// A thread that cannot enter the context says so, and f does not run.
func TestApartThatCannotEnter(t *testing.T) {
	r := newRig(t)
	c := r.newContext(ContextOptions{})
	r.addFaults("call:sym=aclrtSetCurrentContext,nth=1,code=507000")
	err := c.DoBlocking(func(*BlockingThread) error { t.Error("it ran"); return nil })
	if failed := wantClass(t, err, Device); failed == nil || failed.Call != "aclrtSetCurrentContext" {
		t.Errorf("got %v", err)
	}
}

// A Thread that outlived its context is refused, and does not access freed memory.
func TestThreadOfAClosedContext(t *testing.T) {
	r := newRig(t)
	c, err := r.lib.NewContext(ContextOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var kept *Thread
	mustDo(t, c, func(t *Thread) error { kept = t; return nil })
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := kept.MemInfo(); !errors.Is(err, ErrWrongThread) {
		t.Errorf("got %v", err)
	}
	if err := kept.CheckThread(); !errors.Is(err, ErrWrongThread) {
		t.Errorf("got %v", err)
	}
}

// A further library may use a stream where the context is current, until the stream is aborted or closed.
func TestStreamForOtherLibraries(t *testing.T) {
	r := newRig(t)
	c, other := r.newContext(ContextOptions{}), r.newContext(ContextOptions{Device: 1})
	s := newStream(t, c, StreamOptions{})
	aborted := newStream(t, c, StreamOptions{})
	if s.Handle() == 0 || s.Handle() == aborted.Handle() {
		t.Errorf("handles %#x and %#x", s.Handle(), aborted.Handle())
	}
	mustDo(t, c, func(t *Thread) error { return aborted.Abort(t) })
	use := func(at CurrentThread, s *Stream, want error) {
		t.Helper()
		if err := s.CheckUsable(at); !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
	}
	if err := c.DoBlocking(func(g *BlockingThread) error {
		use(g, s, nil)
		use(g, aborted, Cancelled)
		mustDo(t, c, func(t *Thread) error { return s.Close(t) })
		use(g, s, ErrClosed)
		return nil
	}); err != nil {
		t.Error(err)
	}
	mustDo(t, other, func(at *Thread) error { use(at, s, ErrWrongContext); return nil })
}
