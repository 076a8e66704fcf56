//go:build cgo && linux

package acl

import (
	"errors"
	"fmt"
	"testing"
)

// generations lists the functions that old libraries lack. Without a wait for events with a timeout the binding polls,
// without a query of streams it synchronizes, and without events of the newer style it creates new events.
var generations = [][]string{
	nil,
	{"aclrtSynchronizeEventWithTimeout"},
	{"aclrtStreamQuery"},
	{"aclrtCreateEventExWithFlag"},
	{"aclrtCreateEventExWithFlag", "aclrtResetEvent"},
	{"aclrtSynchronizeEventWithTimeout", "aclrtStreamQuery", "aclrtCreateEventExWithFlag", "aclrtResetEvent"},
}

// Each completion arrives once, in order, and not before the bytes of the preceding copies.
func TestCompletionsAreOrderedAndTrue(t *testing.T) {
	for _, hidden := range generations {
		t.Run(fmt.Sprint("without ", hidden), func(t *testing.T) {
			r := newRig(t, hidden...)
			c := r.context(ContextOptions{})
			const rounds, size = 40, 8192
			s, m := stream(t, c, StreamOptions{CompletionsMax: rounds}), device(t, c, rounds*size)
			h, back := host(t, c, rounds*size), host(t, c, rounds*size)
			want := pattern(rounds*size, 7)
			copy(h.Bytes(), want)
			type told struct {
				round int
				err   error
				true  bool
			}
			tells := make(chan told, 2*rounds)
			do(t, c, func(t *Thread) error {
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
			do(t, c, s.Close)
			if len(tells) != 0 {
				t.Errorf("%d completions too many", len(tells))
			}
		})
	}
}

func TestCompletionsAreBounded(t *testing.T) {
	r := newRig(t)
	c := r.context(ContextOptions{})
	s, m, h := stream(t, c, StreamOptions{CompletionsMax: 2}), device(t, c, 64), host(t, c, 64)
	r.fault("done:of=copy,hang=1")
	outcomes := make(chan error, 4)
	do(t, c, func(thread *Thread) error {
		if err := s.Copy(thread, m.All(), h.All()); err != nil {
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
	do(t, c, s.Close)
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
	for _, hidden := range generations {
		t.Run(fmt.Sprint("without ", hidden), func(t *testing.T) {
			r := newRig(t, hidden...)
			c := r.context(ContextOptions{})
			s, m, h := stream(t, c, StreamOptions{}), device(t, c, 1<<20), host(t, c, 1<<20)
			if err := settled(t, c, s); err != nil {
				t.Fatal(err)
			}
			r.fault("done:of=copy,fail=1,code=507056")
			do(t, c, func(t *Thread) error { return s.Copy(t, m.All(), h.All()) })
			if failed := wantClass(t, settled(t, c, s), Link); failed == nil || failed.Code != 507056 {
				t.Errorf("got %v", failed)
			}
		})
	}
}

// Completions reuse events: after many completions there are only as many events as were outstanding at once.
func TestCompletionsReuseEvents(t *testing.T) {
	r := newRig(t)
	c := r.context(ContextOptions{})
	s := stream(t, c, StreamOptions{})
	for range 500 {
		if err := settled(t, c, s); err != nil {
			t.Fatal(err)
		}
	}
	if made := r.stats()["calls.aclrtCreateEventExWithFlag"]; made != 1 {
		t.Errorf("%d events for 500 completions, one at a time", made)
	}
}
