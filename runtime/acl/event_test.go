//go:build cgo && linux

package acl

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// One stream reads and a second stream scatters: the second waits on the device for the first, round after round with
// the same event.
func TestStreamsWaitForEachOther(t *testing.T) {
	for _, hidden := range generations {
		t.Run(fmt.Sprint("without ", hidden), func(t *testing.T) {
			r := newRig(t, hidden...)
			c := r.context(ContextOptions{})
			const size, rounds = 256 << 10, 5
			reads, scatters := stream(t, c, StreamOptions{}), stream(t, c, StreamOptions{})
			m, h, back := device(t, c, size), host(t, c, size), host(t, c, size)
			e := made(t, c, func(t *Thread) (*Event, error) { return t.NewEvent(EventOptions{}) })
			free := made(t, c, func(t *Thread) (*Event, error) { return t.NewEvent(EventOptions{}) })
			for round := range rounds {
				want := pattern(size, byte(round))
				copy(h.Bytes(), want)
				do(t, c, func(t *Thread) error {
					if err := reads.Copy(t, m.All(), h.All()); err != nil {
						return err
					}
					return errors.Join(reads.Record(t, e), scatters.Wait(t, e),
						scatters.Copy(t, back.All(), m.All()), scatters.Record(t, free), reads.Wait(t, free))
				})
				if err := settled(t, c, reads); err != nil {
					t.Fatal(err)
				}
				wantBytes(t, back.Bytes(), want, fmt.Sprintf("round %d", round))
				do(t, c, func(thread *Thread) error {
					if complete, err := free.Complete(thread); !complete || err != nil {
						t.Errorf("round %d: complete %v, %v", round, complete, err)
					}
					return scatters.Synchronize(thread, longEnough)
				})
			}
		})
	}
}

// An event of the newer style that was never recorded looks complete to the library.
func TestUnrecordedEventsAreRefused(t *testing.T) {
	r := newRig(t)
	c := r.context(ContextOptions{})
	s := stream(t, c, StreamOptions{})
	e := made(t, c, func(t *Thread) (*Event, error) { return t.NewEvent(EventOptions{}) })
	do(t, c, func(thread *Thread) error {
		_, complete := e.Complete(thread)
		for name, err := range map[string]error{
			"complete": complete, "synchronize": e.Synchronize(thread, longEnough), "wait": s.Wait(thread, e),
		} {
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("%s: %v", name, err)
			}
		}
		return nil
	})
	do(t, c, e.Close)
	if err := c.Do(func(t *Thread) error { return s.Record(t, e) }); !errors.Is(err, ErrClosed) {
		t.Errorf("recording a closed event: %v", err)
	}
}

func TestEventTimeout(t *testing.T) {
	r := newRig(t)
	c := r.context(ContextOptions{})
	s, m, h := stream(t, c, StreamOptions{}), device(t, c, 64), host(t, c, 64)
	e := made(t, c, func(t *Thread) (*Event, error) { return t.NewEvent(EventOptions{}) })
	r.fault("done:of=copy,hang=1")
	do(t, c, func(thread *Thread) error {
		if err := errors.Join(s.Copy(thread, m.All(), h.All()), s.Record(thread, e)); err != nil {
			return err
		}
		if complete, err := e.Complete(thread); complete || err != nil {
			t.Errorf("complete %v, %v, behind a copy that hangs", complete, err)
		}
		if err := e.Synchronize(thread, time.Millisecond); !errors.Is(err, Timeout) || err.(*Error).Code != 507047 {
			t.Errorf("got %v, want 507047", err)
		}
		return s.Abort(thread)
	})
}

func TestElapsed(t *testing.T) {
	r := newRig(t)
	c := r.context(ContextOptions{})
	s, m, h := stream(t, c, StreamOptions{}), device(t, c, 1<<20), host(t, c, 1<<20)
	event := func(t *Thread) (*Event, error) { return t.NewEvent(EventOptions{Timing: true}) }
	start, end := made(t, c, event), made(t, c, event)
	r.fault("done:of=copy,delay=2000")
	do(t, c, func(thread *Thread) error {
		err := errors.Join(s.Record(thread, start), s.Copy(thread, m.All(), h.All()), s.Record(thread, end),
			s.Synchronize(thread, longEnough))
		if err != nil {
			return err
		}
		took, err := end.Elapsed(thread, start)
		if took < 2*time.Millisecond { // at least: the copy was made to take that long
			t.Errorf("took %v", took)
		}
		return err
	})
}
