//go:build cgo && linux

package npu

import (
	"errors"
	"fmt"
	"time"

	"github.com/kvferry/kvferry/runtime/acl"
)

// A track is a stream that has one piece of work at a time, so that who fails is known and who does not
// is not disturbed. It belongs to one goroutine after another.
type track struct {
	context *acl.Context
	stream  *acl.Stream // nil: made when it is needed
	aborted bool
	ended   chan error // the completion of the work; holds one
}

// ErrStuck: work did not end in time. It may go on.
var ErrStuck = errors.New("npu: stuck")

// grace is how long work that nobody waits for any more may still take before it is aborted.
const grace = 100 * time.Millisecond

// open makes the stream where there is none.
func (k *track) open(t *acl.Thread) (err error) {
	if k.stream == nil {
		k.aborted = false
		k.stream, err = t.NewStream(acl.StreamOptions{CompletionsMax: 1})
	}
	return err
}

// run has put put work into the stream and waits for its end: for limit, and when hurry is closed only for a
// moment more. Unless it is settled, by nil or because nothing was put in, quieten must follow.
func (k *track) run(put func(*acl.Thread, *acl.Stream) error, limit time.Duration, hurry <-chan struct{}) (settled bool,
	err error) {
	ended := make(chan error, 1)
	k.ended = ended
	touched := false
	err = k.context.Do(func(t *acl.Thread) error {
		if err := k.open(t); err != nil {
			return err
		}
		touched = true // An error of put's says little about what it had put in by then.
		if err := put(t, k.stream); err != nil {
			return err
		}
		return k.stream.Notify(t, func(err error) { ended <- err })
	})
	if err != nil {
		return !touched, err
	}
	patience := time.NewTimer(limit)
	defer patience.Stop()
	for {
		select {
		case err := <-ended:
			return err == nil, err
		case <-hurry:
			hurry, limit = nil, min(limit, grace)
			patience.Reset(limit)
		case <-patience.C:
			return false, fmt.Errorf("%w: it did not end in %v", ErrStuck, limit)
		}
	}
}

// The pauses between two attempts to end a stream that the library refuses to.
const (
	againMin = 10 * time.Millisecond
	againMax = time.Second
)

// margin is what the piece of work that was under way at an abort is given to end: AscendCL names no bound, and its
// own users wait as long.
const margin = 100 * time.Millisecond

// quieten aborts and destroys the stream, and returns when nothing of it can touch memory any more. It tries until it
// succeeds, or until stop is closed: then the error says why it did not, and it may be called again. completed
// says that the work has ended well after all.
func (k *track) quieten(stop <-chan struct{}) (completed bool, err error) {
	for again := againMin; ; again = min(2*again, againMax) {
		if err = k.context.Do(k.destroy); err == nil {
			break
		}
		pause := time.NewTimer(again)
		select {
		case <-pause.C:
		case <-stop:
			pause.Stop()
			return false, err
		}
	}
	<-time.After(margin)
	select {
	case err := <-k.ended:
		return err == nil, nil
	default:
		return false, nil
	}
}

// destroy ends the stream, whatever is in it. Without an abort, which old libraries do not have, it is only
// destroyed when its work has ended.
func (k *track) destroy(t *acl.Thread) error {
	if !k.aborted {
		err := k.stream.Abort(t)
		if err != nil && !errors.Is(err, acl.Unsupported) {
			return err
		}
		k.aborted = err == nil
	}
	return k.close(t)
}

// close gives the stream back, where there is one.
func (k *track) close(t *acl.Thread) error {
	if k.stream == nil {
		return nil
	}
	if err := k.stream.Close(t); err != nil {
		return err
	}
	k.stream = nil
	return nil
}
