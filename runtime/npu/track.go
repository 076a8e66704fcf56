//go:build cgo && linux

package npu

import (
	"errors"
	"fmt"
	"time"

	"github.com/kvferry/kvferry/runtime/acl"
)

// A track is a stream that runs a single piece of work at a time, so that a failure belongs to this piece and disturbs
// no further work. Only one goroutine uses the stream at a time.
type track struct {
	context *acl.Context
	stream  *acl.Stream // nil: made when needed
	aborted bool
	ended   chan error // the completion of the work; buffered, for one value
}

// ErrStuck: work did not end in time, and may still be running.
var ErrStuck = errors.New("npu: stuck")

// grace is the time after which abandoned work is aborted.
const grace = 100 * time.Millisecond

// open makes the stream if there is none.
func (k *track) open(t *acl.Thread) (err error) {
	if k.stream == nil {
		k.aborted = false
		k.stream, err = t.NewStream(acl.StreamOptions{CompletionsMax: 1})
	}
	return err
}

// run calls enqueue to put work into the stream, and waits for the end of the work: for limit, or for abandonGrace once
// hurry is closed. settled is true if the work ended without an error, or if no work was put into the stream. Otherwise
// the caller must next call endWork, because the work may still touch memory (M4).
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

// margin is the time for which a piece may still be moved after an abort. AscendCL gives no bound; the vendor's
// transfer library waits as long.
const margin = 100 * time.Millisecond

// quieten aborts and destroys the stream, and returns nil when no work of the stream can touch memory any more (M4). A
// refused attempt is repeated until stop is closed; then the result is the last error, and the method may be called
// again. completed is true if the work has ended successfully after all.
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

// destroy ends the stream with any work in it. Without an abort, which old libraries lack, the stream is destroyed only
// once the work has ended.
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
