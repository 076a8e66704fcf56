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
	for _, hidden := range olderLibraries {
		t.Run(fmt.Sprint("without ", hidden), func(t *testing.T) {
			r := newRig(t, hidden...)
			c := r.newContext(ContextOptions{})
			const size, rounds = 256 << 10, 5
			reads, scatters := newStream(t, c, StreamOptions{}), newStream(t, c, StreamOptions{})
			m, h, back := allocDevice(t, c, size), allocHost(t, c, size), allocHost(t, c, size)
			e := mustMake(t, c, func(t *Thread) (*Event, error) { return t.NewEvent(EventOptions{}) })
			free := mustMake(t, c, func(t *Thread) (*Event, error) { return t.NewEvent(EventOptions{}) })
			for round := range rounds {
				want := pattern(size, byte(round))
				copy(h.Bytes(), want)
				mustDo(t, c, func(t *Thread) error {
					if err := reads.Copy(t, m.FullRange(), h.FullRange()); err != nil {
						return err
					}
					return errors.Join(reads.RecordEvent(t, e), scatters.WaitEvent(t, e),
						scatters.Copy(t, back.FullRange(), m.FullRange()), scatters.RecordEvent(t, free), reads.WaitEvent(t, free))
				})
				if err := awaitSettled(t, c, reads); err != nil {
					t.Fatal(err)
				}
				wantBytes(t, back.Bytes(), want, fmt.Sprintf("round %d", round))
				mustDo(t, c, func(thread *Thread) error {
					if complete, err := free.IsComplete(thread); !complete || err != nil {
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
	c := r.newContext(ContextOptions{})
	s := newStream(t, c, StreamOptions{})
	e := mustMake(t, c, func(t *Thread) (*Event, error) { return t.NewEvent(EventOptions{}) })
	mustDo(t, c, func(thread *Thread) error {
		_, complete := e.IsComplete(thread)
		for name, err := range map[string]error{
			"complete": complete, "synchronize": e.Synchronize(thread, longEnough), "wait": s.WaitEvent(thread, e),
		} {
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("%s: %v", name, err)
			}
		}
		return nil
	})
	mustDo(t, c, e.Close)
	if err := c.Do(func(t *Thread) error { return s.RecordEvent(t, e) }); !errors.Is(err, ErrClosed) {
		t.Errorf("recording a closed event: %v", err)
	}
}

func TestEventTimeout(t *testing.T) {
	r := newRig(t)
	c := r.newContext(ContextOptions{})
	s, m, h := newStream(t, c, StreamOptions{}), allocDevice(t, c, 64), allocHost(t, c, 64)
	e := mustMake(t, c, func(t *Thread) (*Event, error) { return t.NewEvent(EventOptions{}) })
	r.addFaults("done:of=copy,hang=1")
	mustDo(t, c, func(thread *Thread) error {
		if err := errors.Join(s.Copy(thread, m.FullRange(), h.FullRange()), s.RecordEvent(thread, e)); err != nil {
			return err
		}
		if complete, err := e.IsComplete(thread); complete || err != nil {
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
	c := r.newContext(ContextOptions{})
	s, m, h := newStream(t, c, StreamOptions{}), allocDevice(t, c, 1<<20), allocHost(t, c, 1<<20)
	event := func(t *Thread) (*Event, error) { return t.NewEvent(EventOptions{Timing: true}) }
	start, end := mustMake(t, c, event), mustMake(t, c, event)
	r.addFaults("done:of=copy,delay=2000")
	mustDo(t, c, func(thread *Thread) error {
		err := errors.Join(s.RecordEvent(thread, start), s.Copy(thread, m.FullRange(), h.FullRange()), s.RecordEvent(thread, end),
			s.Synchronize(thread, longEnough))
		if err != nil {
			return err
		}
		took, err := end.ElapsedSince(thread, start)
		if took < 2*time.Millisecond { // at least: the copy was made to take that long
			t.Errorf("took %v", took)
		}
		return err
	})
}
