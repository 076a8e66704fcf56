//go:build cgo && linux

package npu

import (
	"errors"
	"fmt"
	"time"

	"github.com/kvferry/kvferry/runtime/acl"
)

// A workStream is a stream that runs a single piece of work at a time, so that a failure belongs to this piece and
// disturbs no further work. Only one goroutine uses the stream at a time.
type workStream struct {
	context    *acl.Context
	stream     *acl.Stream // nil: made when needed
	aborted    bool
	completion chan error // the completion of the work; buffered, for one value
}

// ErrStuck: work did not end in time, and may still be running.
var ErrStuck = errors.New("npu: stuck")

// abandonGrace is the time after which abandoned work is aborted.
const abandonGrace = 100 * time.Millisecond

// openStream makes the stream if there is none.
func (k *workStream) openStream(t *acl.Thread) (err error) {
	if k.stream == nil {
		k.aborted = false
		k.stream, err = t.NewStream(acl.StreamOptions{CompletionsMax: 1})
	}
	return err
}

// runWork calls enqueue to put work into the stream, and waits for the end of the work: for limit, or for abandonGrace
// once hurry is closed. settled is true if the work ended without an error, or if no work was put into the stream.
// Otherwise the caller must next call endWork, because the work may still touch memory (M4).
func (k *workStream) runWork(enqueue func(*acl.Thread, *acl.Stream) error, limit time.Duration, hurry <-chan struct{}) (settled bool,
	err error) {
	ended := make(chan error, 1)
	k.completion = ended
	mayHaveWork := false
	err = k.context.Do(func(t *acl.Thread) error {
		if err := k.openStream(t); err != nil {
			return err
		}
		mayHaveWork = true // after an error of enqueue some work may be in the stream
		if err := enqueue(t, k.stream); err != nil {
			return err
		}
		return k.stream.Notify(t, func(err error) { ended <- err })
	})
	if err != nil {
		return !mayHaveWork, err
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		select {
		case err := <-ended:
			return err == nil, err
		case <-hurry:
			hurry, limit = nil, min(limit, abandonGrace)
			timer.Reset(limit)
		case <-timer.C:
			return false, fmt.Errorf("%w: the work did not end within %v", ErrStuck, limit)
		}
	}
}

// The pauses between two attempts to destroy a stream that the library refuses to destroy.
const (
	retryMin = 10 * time.Millisecond
	retryMax = time.Second
)

// abortMargin is the time for which a piece may still be moved after an abort. AscendCL gives no bound; the vendor's
// transfer library waits as long.
const abortMargin = 100 * time.Millisecond

// endWork aborts and destroys the stream, and returns nil when no work of the stream can touch memory any more (M4). A
// refused attempt is repeated until stop is closed; then the result is the last error, and the method may be called
// again. completed is true if the work has ended successfully after all.
func (k *workStream) endWork(stop <-chan struct{}) (completed bool, err error) {
	for delay := retryMin; ; delay = min(2*delay, retryMax) {
		if err = k.context.Do(k.abortAndClose); err == nil {
			break
		}
		timer := time.NewTimer(delay)
		select {
		case <-timer.C:
		case <-stop:
			timer.Stop()
			return false, err
		}
	}
	<-time.After(abortMargin)
	select {
	case err := <-k.completion:
		return err == nil, nil
	default:
		return false, nil
	}
}

// abortAndClose ends the stream with any work in it. Without an abort, which old libraries lack, the stream is
// destroyed only once the work has ended.
func (k *workStream) abortAndClose(t *acl.Thread) error {
	if !k.aborted {
		err := k.stream.Abort(t)
		if err != nil && !errors.Is(err, acl.Unsupported) {
			return err
		}
		k.aborted = err == nil
	}
	return k.closeStream(t)
}

// closeStream destroys the stream if there is one.
func (k *workStream) closeStream(t *acl.Thread) error {
	if k.stream == nil {
		return nil
	}
	if err := k.stream.Close(t); err != nil {
		return err
	}
	k.stream = nil
	return nil
}
