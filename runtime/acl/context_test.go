//go:build cgo && linux

package acl

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestCloseCountsWhatIsLeft(t *testing.T) {
	r := newRig(t)
	c, err := r.lib.NewContext(ContextOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var left []interface{ Close(*Thread) error }
	mustDo(t, c, func(t *Thread) error {
		s, err := t.NewStream(StreamOptions{})
		if err != nil {
			return err
		}
		e, err := t.NewEvent(EventOptions{})
		if err != nil {
			return err
		}
		m, err := t.AllocDevice(64, HugeFirst)
		if err != nil {
			return err
		}
		h, err := t.AllocHost(64)
		left = append(left, s, e, m, h)
		return err
	})
	for _, want := range []string{
		" streams=1 events=1 device allocations=1 host allocations=1:", " events=1 device allocations=1 host allocations=1:",
		" device allocations=1 host allocations=1:", " host allocations=1:",
	} {
		if err := c.Close(); !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), "has"+want) {
			t.Errorf("got %v, want ErrBusy with%s", err, want)
		}
		if err := r.lib.Close(); !errors.Is(err, ErrBusy) {
			t.Errorf("closing the library under a context: %v", err)
		}
		mustDo(t, c, left[0].Close)
		mustDo(t, c, left[0].Close) // a second time does nothing
		left = left[1:]
	}
	for range 2 {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := c.Do(func(*Thread) error { return nil }); !errors.Is(err, ErrClosed) {
		t.Errorf("a closed context runs: %v", err)
	}
}

// The objects of a lost device cannot be closed: every call reports that the device is lost.
func TestAbandonALostDevice(t *testing.T) {
	r := newRig(t)
	c, err := r.lib.NewContext(ContextOptions{Device: 2})
	if err != nil {
		t.Fatal(err)
	}
	outcome := make(chan error, 1)
	r.addFaults("done:of=copy,hang=1")
	var s *Stream
	mustDo(t, c, func(t *Thread) error {
		if s, err = t.NewStream(StreamOptions{}); err != nil {
			return err
		}
		m, err := t.AllocDevice(64, HugeFirst)
		if err != nil {
			return err
		}
		h, err := t.AllocHost(64)
		if err != nil {
			return err
		}
		if err := s.Copy(t, m.FullRange(), h.FullRange()); err != nil {
			return err
		}
		return s.Notify(t, func(err error) { outcome <- err })
	})
	r.runCommand("faults device:lost=2")
	if err := <-outcome; !errors.Is(err, DeviceLost) {
		t.Errorf("the completion ended with %v", err)
	}
	if err := c.Do(s.Close); !errors.Is(err, DeviceLost) {
		t.Errorf("closing its stream: %v", err)
	}
	if err := c.Close(); !errors.Is(err, ErrBusy) {
		t.Errorf("got %v, want ErrBusy", err)
	}
	if err := c.Abandon(); !errors.Is(err, DeviceLost) {
		t.Errorf("abandoning it: %v", err)
	}
	r.left = r.runCommand("leaks") // what is on a lost device is lost
}

// Completions of an abandoned context end, each exactly once.
func TestAbandonEndsCompletions(t *testing.T) {
	r := newRig(t)
	c, err := r.lib.NewContext(ContextOptions{Primary: true})
	if err != nil {
		t.Fatal(err)
	}
	r.addFaults("done:of=copy,hang=1")
	const outstanding = 5
	outcomes := make(chan error, 2*outstanding)
	mustDo(t, c, func(t *Thread) error {
		s, err := t.NewStream(StreamOptions{})
		if err != nil {
			return err
		}
		m, err := t.AllocDevice(64, HugeFirst)
		if err != nil {
			return err
		}
		h, err := t.AllocHost(64)
		if err != nil {
			return err
		}
		for range outstanding {
			if err := s.Copy(t, m.FullRange(), h.FullRange()); err != nil {
				return err
			}
			if err := s.Notify(t, func(err error) { outcomes <- err }); err != nil {
				return err
			}
		}
		return nil
	})
	if err := c.Abandon(); err != nil {
		t.Error(err)
	}
	if len(outcomes) != outstanding {
		t.Fatalf("%d outcomes of %d completions", len(outcomes), outstanding)
	}
	for range outstanding {
		if err := <-outcomes; !errors.Is(err, Cancelled) {
			t.Errorf("got %v, want Cancelled", err)
		}
	}
}

func TestContextOptions(t *testing.T) {
	r := newRig(t)
	if _, err := r.lib.NewContext(ContextOptions{CloseTimeout: -time.Second}); !errors.Is(err, ErrInvalid) {
		t.Errorf("a negative timeout: %v", err)
	}
	c := r.newContext(ContextOptions{Device: 1, Primary: true})
	if c.Device() != 1 {
		t.Errorf("device %d", c.Device())
	}
	// A failure that stops all streams of a primary context would stop the engine's streams.
	err := c.Do(func(t *Thread) error { _, err := t.NewStream(StreamOptions{StopOnFailure: true}); return err })
	if !errors.Is(err, ErrInvalid) {
		t.Errorf("StopOnFailure in a primary context: %v", err)
	}
}

func TestOtherContextsThingsAreRefused(t *testing.T) {
	r := newRig(t)
	mine, other := r.newContext(ContextOptions{}), r.newContext(ContextOptions{Device: 1})
	s, h, m := newStream(t, other, StreamOptions{}), allocHost(t, mine, 64), allocDevice(t, other, 64)
	own := newStream(t, mine, StreamOptions{})
	e := mustMake(t, other, func(t *Thread) (*Event, error) { return t.NewEvent(EventOptions{}) })
	mustDo(t, mine, func(thread *Thread) error {
		for name, err := range map[string]error{
			"stream": s.RecordEvent(thread, e), "close of a stream": s.Close(thread), "abort": s.Abort(thread),
			"event": own.RecordEvent(thread, e), "close of an event": e.Close(thread), "memory": own.Copy(thread, m.FullRange(), h.FullRange()),
			"close of memory": m.Close(thread),
		} {
			if !errors.Is(err, ErrWrongContext) {
				t.Errorf("%s: %v, want ErrForeign", name, err)
			}
		}
		return nil
	})
}
