//go:build cgo && linux

package npu

import (
	"errors"
	"fmt"
	"time"

	"github.com/kvferry/kvferry/runtime/acl"
)

// A track is a stream that runs one piece of work at a time, so that a failure belongs to one piece and disturbs no
// other. It belongs to one goroutine at a time.
type track struct {
	context *acl.Context
	stream  *acl.Stream // nil: made when it is needed
	aborted bool
	ended   chan error // the completion of the work; has room for one
}

// ErrStuck: work did not end in time. It may still be running.
var ErrStuck = errors.New("npu: stuck")

// grace is how much longer abandoned work may take before it is aborted.
const grace = 100 * time.Millisecond

// open makes the stream if there is none.
func (k *track) open(t *acl.Thread) (err error) {
	if k.stream == nil {
		k.aborted = false
		k.stream, err = t.NewStream(acl.StreamOptions{CompletionsMax: 1})
	}
	return err
}

// run calls put to put work into the stream and waits for its end: for limit, or for grace once hurry is closed.
// settled is true if the work ended with nil or if nothing was put in; otherwise the caller must call quieten next.
func (k *track) run(put func(*acl.Thread, *acl.Stream) error, limit time.Duration, hurry <-chan struct{}) (settled bool,
	err error) {
	ended := make(chan error, 1)
	k.ended = ended
	touched := false
	err = k.context.Do(func(t *acl.Thread) error {
		if err := k.open(t); err != nil {
			return err
		}
		touched = true // after an error of put some work may be in the stream
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

// The pauses between two attempts to destroy a stream that the library refuses to destroy.
const (
	againMin = 10 * time.Millisecond
	againMax = time.Second
)

// margin is the time that the piece being moved at an abort gets to end: AscendCL gives no bound, and its own users
// wait as long.
const margin = 100 * time.Millisecond

// quieten aborts and destroys the stream, and returns when none of its work can touch memory any more. It tries until
// it succeeds, or until stop is closed: then the error says why it did not, and it may be called again. completed says
// that the work has ended successfully after all.
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

// destroy ends the stream, whatever is in it. Without an abort, which old libraries lack, it is destroyed only once its
// work has ended.
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

// close destroys the stream if there is one.
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
