//go:build cgo && linux

package acl

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// The end of the wait is not the end of the work: the pages are in use until the stream reports otherwise.
func TestTimedSynchronizeLeavesTheWorkRunning(t *testing.T) {
	r := newRig(t)
	c := r.newContext(ContextOptions{})
	const size = 1 << 20
	s, m, h := newStream(t, c, StreamOptions{}), allocDevice(t, c, size), allocHost(t, c, size)
	old, want := pattern(size, 3), pattern(size, 4)
	copy(h.Bytes(), want)
	mustDo(t, c, func(t *Thread) error { return t.Upload(m.FullRange(), old) })
	r.addFaults("done:of=copy,hang=1")
	got := make([]byte, size)
	mustDo(t, c, func(thread *Thread) error {
		if err := s.Copy(thread, m.FullRange(), h.FullRange()); err != nil {
			return err
		}
		if failed := wantClass(t, s.Synchronize(thread, time.Millisecond), Timeout); failed.Code != 507046 {
			t.Errorf("got %v, want 507046", failed)
		}
		return thread.Download(got, m.FullRange())
	})
	wantBytes(t, got, old, "what a copy that has not moved leaves")
	r.runCommand("clear") // if the copy has not begun, it will not hang
	r.runCommand("release")
	mustDo(t, c, func(t *Thread) error {
		return errors.Join(s.Synchronize(t, longEnough), t.Download(got, m.FullRange()))
	})
	wantBytes(t, got, want, "what the copy brings in the end")
}

func TestSynchronizeRefusesTimeoutsThatMeanForEver(t *testing.T) {
	r := newRig(t)
	c := r.newContext(ContextOptions{})
	s := newStream(t, c, StreamOptions{})
	e := mustMake(t, c, func(t *Thread) (*Event, error) { return t.NewEvent(EventOptions{}) })
	mustDo(t, c, func(thread *Thread) error {
		if err := s.RecordEvent(thread, e); err != nil {
			return err
		}
		for _, d := range []time.Duration{0, -time.Millisecond} {
			if err := s.Synchronize(thread, d); !errors.Is(err, ErrInvalid) {
				t.Errorf("a stream for %v: %v", d, err)
			}
			if err := e.Synchronize(thread, d); !errors.Is(err, ErrInvalid) {
				t.Errorf("an event for %v: %v", d, err)
			}
		}
		return errors.Join(s.Synchronize(thread, longEnough), e.Synchronize(thread, longEnough))
	})
}

func TestMilliseconds(t *testing.T) {
	for d, want := range map[time.Duration]int32{
		time.Nanosecond: 1, time.Millisecond: 1, time.Millisecond + 1: 2, 1500 * time.Microsecond: 2, time.Hour: 3600000,
		1 << 62: 1<<31 - 1,
	} {
		if got, err := roundToMilliseconds(d); int32(got) != want || err != nil {
			t.Errorf("%v: %d ms, %v; want %d", d, got, err, want)
		}
	}
}

// An aborted stream delivers all completions, none of which reports that memory is settled, and accepts no more work.
func TestAbort(t *testing.T) {
	for _, hidden := range [][]string{nil, {"aclrtSynchronizeEventWithTimeout"}, {"aclrtDestroyStreamForce"}} {
		t.Run(fmt.Sprint("without ", hidden), func(t *testing.T) {
			r := newRig(t, hidden...)
			c := r.newContext(ContextOptions{})
			s, m, h := newStream(t, c, StreamOptions{}), allocDevice(t, c, 4096), allocHost(t, c, 4096)
			r.addFaults("done:of=copy,hang=1")
			const outstanding = 3
			outcomes := make(chan error, 2*outstanding)
			mustDo(t, c, func(t *Thread) error {
				for range outstanding {
					if err := errors.Join(s.Copy(t, m.FullRange(), h.FullRange()), s.Notify(t, func(err error) { outcomes <- err })); err != nil {
						return err
					}
				}
				return nil
			})
			if err := c.Do(s.Close); !errors.Is(err, ErrBusy) {
				t.Errorf("closed under completions: %v", err)
			}
			mustDo(t, c, s.Abort)
			for range outstanding {
				if err := <-outcomes; !errors.Is(err, Cancelled) {
					t.Errorf("got %v, want Cancelled", err)
				}
			}
			mustDo(t, c, func(thread *Thread) error {
				for name, err := range map[string]error{
					"copy": s.Copy(thread, m.FullRange(), h.FullRange()), "notify": s.Notify(thread, func(error) { t.Error("told") }),
					"synchronize": s.Synchronize(thread, longEnough),
				} {
					if !errors.Is(err, Cancelled) {
						t.Errorf("%s on an aborted stream: %v", name, err)
					}
				}
				return nil
			})
		})
	}
}

// Without aclrtStreamAbort, Abort fails and changes nothing: the work ends normally.
func TestAbortOfAnOldLibrary(t *testing.T) {
	r := newRig(t, "aclrtStreamAbort")
	c := r.newContext(ContextOptions{})
	s := newStream(t, c, StreamOptions{})
	err := c.Do(s.Abort)
	var missing *MissingError
	if !errors.As(err, &missing) || missing.Symbol != "aclrtStreamAbort" || !errors.Is(err, Unsupported) {
		t.Errorf("got %v", err)
	}
	if err := awaitSettled(t, c, s); err != nil {
		t.Errorf("the stream does not go on: %v", err)
	}
}

// Work without a completion may hang, too: Close fails in time, and succeeds after an abort.
func TestCloseOfAStuckStreamEndsInTime(t *testing.T) {
	r := newRig(t)
	c := r.newContext(ContextOptions{CloseTimeout: time.Millisecond})
	s, m, h := newStream(t, c, StreamOptions{}), allocDevice(t, c, 4096), allocHost(t, c, 4096)
	r.addFaults("done:of=copy,hang=1")
	mustDo(t, c, func(t *Thread) error { return s.Copy(t, m.FullRange(), h.FullRange()) })
	if err := c.Do(s.Close); !errors.Is(err, Timeout) {
		t.Errorf("got %v, want Timeout", err)
	}
	mustDo(t, c, s.Abort)
	mustDo(t, c, s.Close)
}

// A failure affects its stream, and with StopOnFailure all streams of the context.
func TestFailure(t *testing.T) {
	for _, stops := range []bool{false, true} {
		t.Run(fmt.Sprintf("StopOnFailure=%v", stops), func(t *testing.T) {
			r := newRig(t)
			c := r.newContext(ContextOptions{})
			s, other := newStream(t, c, StreamOptions{StopOnFailure: stops}), newStream(t, c, StreamOptions{})
			m, h := allocDevice(t, c, 4096), allocHost(t, c, 4096)
			r.addFaults("done:of=copy,fail=1,code=507056")
			mustDo(t, c, func(t *Thread) error { return s.Copy(t, m.FullRange(), h.FullRange()) })
			if err := awaitSettled(t, c, s); !errors.Is(err, Link) {
				t.Fatalf("got %v, want the link's failure", err)
			}
			mustDo(t, c, func(thread *Thread) error {
				if err := s.Failure(thread); !errors.Is(err, Link) {
					t.Errorf("the stream says %v", err)
				}
				if err := other.Failure(thread); errors.Is(err, Link) != stops {
					t.Errorf("the other stream says %v", err)
				}
				return nil
			})
		})
	}
}
