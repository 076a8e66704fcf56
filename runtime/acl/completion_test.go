//go:build cgo && linux

package acl

import (
	"errors"
	"fmt"
	"testing"
)

// olderLibraries lists the functions that old libraries lack. Without a wait for events with a timeout the binding
// polls, without a query of streams it synchronizes, and without events of the newer style it creates new events.
var olderLibraries = [][]string{
	nil,
	{"aclrtSynchronizeEventWithTimeout"},
	{"aclrtStreamQuery"},
	{"aclrtCreateEventExWithFlag"},
	{"aclrtCreateEventExWithFlag", "aclrtResetEvent"},
	{"aclrtSynchronizeEventWithTimeout", "aclrtStreamQuery", "aclrtCreateEventExWithFlag", "aclrtResetEvent"},
}

// Each completion arrives once, in order, and not before the bytes of the preceding copies.
func TestCompletionsAreOrderedAndTrue(t *testing.T) {
	for _, hidden := range olderLibraries {
		t.Run(fmt.Sprint("without ", hidden), func(t *testing.T) {
			r := newRig(t, hidden...)
			c := r.newContext(ContextOptions{})
			const rounds, size = 40, 8192
			s, m := newStream(t, c, StreamOptions{CompletionsMax: rounds}), allocDevice(t, c, rounds*size)
			h, back := allocHost(t, c, rounds*size), allocHost(t, c, rounds*size)
			want := pattern(rounds*size, 7)
			copy(h.Bytes(), want)
			type told struct {
				round int
				err   error
				true  bool
			}
			tells := make(chan told, 2*rounds)
			mustDo(t, c, func(t *Thread) error {
				for i := range uint64(rounds) {
					if err := s.Copy(t, m.Range(i*size, size), h.Range(i*size, size)); err != nil {
						return err
					}
					if err := s.Copy(t, back.Range(i*size, size), m.Range(i*size, size)); err != nil {
						return err
					}
					if err := s.Notify(t, func(err error) {
						same := string(back.Bytes()[i*size:(i+1)*size]) == string(want[i*size:(i+1)*size])
						tells <- told{int(i), err, same}
					}); err != nil {
						return err
					}
				}
				return nil
			})
			for i := range rounds {
				if got := <-tells; got != (told{i, nil, true}) {
					t.Fatalf("the %dth completion was %+v", i, got)
				}
			}
			// A stream closes only when all completions have arrived, so that a repeated completion would be seen.
			mustDo(t, c, s.Close)
			if len(tells) != 0 {
				t.Errorf("%d completions too many", len(tells))
			}
		})
	}
}

func TestCompletionsAreBounded(t *testing.T) {
	r := newRig(t)
	c := r.newContext(ContextOptions{})
	s, m, h := newStream(t, c, StreamOptions{CompletionsMax: 2}), allocDevice(t, c, 64), allocHost(t, c, 64)
	r.addFaults("done:of=copy,hang=1")
	outcomes := make(chan error, 4)
	mustDo(t, c, func(thread *Thread) error {
		if err := s.Copy(thread, m.FullRange(), h.FullRange()); err != nil {
			return err
		}
		for i, want := range []error{nil, nil, ErrBusy} {
			if err := s.Notify(thread, func(err error) { outcomes <- err }); !errors.Is(err, want) {
				t.Errorf("the %dth: %v, want %v", i, err, want)
			}
		}
		return s.Abort(thread)
	})
	for range 2 {
		if err := <-outcomes; !errors.Is(err, Cancelled) {
			t.Error(err)
		}
	}
	mustDo(t, c, s.Close)
	if len(outcomes) != 0 {
		t.Errorf("%d outcomes of what was refused", len(outcomes))
	}
	err := c.Do(func(t *Thread) error { _, err := t.NewStream(StreamOptions{CompletionsMax: -1}); return err })
	if !errors.Is(err, ErrInvalid) {
		t.Errorf("a bound of -1: %v", err)
	}
}

// The stream reaches the event behind a failed task all the same; the completion must not report that memory is
// settled.
func TestCompletionBehindAFailureIsNotBelieved(t *testing.T) {
	for _, hidden := range olderLibraries {
		t.Run(fmt.Sprint("without ", hidden), func(t *testing.T) {
			r := newRig(t, hidden...)
			c := r.newContext(ContextOptions{})
			s, m, h := newStream(t, c, StreamOptions{}), allocDevice(t, c, 1<<20), allocHost(t, c, 1<<20)
			if err := awaitSettled(t, c, s); err != nil {
				t.Fatal(err)
			}
			r.addFaults("done:of=copy,fail=1,code=507056")
			mustDo(t, c, func(t *Thread) error { return s.Copy(t, m.FullRange(), h.FullRange()) })
			if failed := wantClass(t, awaitSettled(t, c, s), Link); failed == nil || failed.Code != 507056 {
				t.Errorf("got %v", failed)
			}
		})
	}
}

// Completions reuse events: after many completions there are only as many events as were outstanding at once.
func TestCompletionsReuseEvents(t *testing.T) {
	r := newRig(t)
	c := r.newContext(ContextOptions{})
	s := newStream(t, c, StreamOptions{})
	for range 500 {
		if err := awaitSettled(t, c, s); err != nil {
			t.Fatal(err)
		}
	}
	if made := r.readStats()["calls.aclrtCreateEventExWithFlag"]; made != 1 {
		t.Errorf("%d events for 500 completions, one at a time", made)
	}
}
