//go:build cgo && linux

package hccl

import (
	"errors"
	"fmt"
	"time"

	"github.com/kvferry/kvferry/runtime/acl"
	"github.com/kvferry/kvferry/runtime/hccl/comm"
)

// A commParams holds the parameters from which both ends of a link make the communicators of all epochs.
type commParams struct {
	session     [16]byte
	table       []byte // the rank table
	rank        uint32 // our rank in the table
	peerRegions int    // number of regions that the peer binds
	hccs        bool
}

// commName returns the name of an epoch's communicator. The name is unique because the session is random and no epoch
// number is used twice.
func (p *commParams) commName(epoch uint64) string { return fmt.Sprintf("kvf-%x-%d", p.session, epoch) }

// An endpoint is this node's end of a communicator. The initiator's end also has the stream of the batches.
type endpoint struct {
	comm   *comm.Comm
	stream *acl.Stream
	hccs   bool
}

// newEndpoint makes this node's end of a communicator, binds the pool's memory and meets the peer. The call blocks for
// up to three times PrepareTimeout. After an error, destroyed reports whether the end was destroyed again.
func (p *Plane) newEndpoint(params *commParams, epoch uint64, root []byte, withStream bool) (e *endpoint, destroyed bool, err error) {
	o := comm.CommOptions{
		Name: params.commName(epoch), Rank: params.rank, RankTable: params.table,
		TrafficClass: p.cfg.TrafficClass, ServiceLevel: p.cfg.ServiceLevel, CloseTimeout: p.cfg.DestroyTimeout,
	}
	if p.cfg.UseRootInfo {
		o.RankTable, o.RootInfo = nil, root
	}
	e = &endpoint{hccs: params.hccs}
	err = p.device.DoBlocking(func(thread *acl.BlockingThread) (err error) {
		if e.comm, err = p.lib.NewComm(thread, o); err != nil {
			return err
		}
		if err = e.comm.Bind(thread, p.regions...); err != nil {
			return err
		}
		return e.comm.Prepare(thread, p.cfg.PrepareTimeout, params.peerRegions)
	})
	if err == nil && withStream {
		err = p.device.Do(func(t *acl.Thread) (err error) {
			e.stream, err = t.NewStream(acl.StreamOptions{CompletionsMax: p.cfg.Window})
			return err
		})
	}
	switch {
	case err == nil:
		return e, false, nil
	case e.comm == nil:
		return nil, true, err
	}
	failed := p.destroyEndpoint(e, func() {})
	return nil, failed == nil, errors.Join(err, failed)
}

// destroyTries is the number of attempts to destroy a busy communicator, each of which takes seconds.
const destroyTries = 20

// destroyEndpoint destroys this node's end of the communicator. A nil error is the proof that the end is gone. If the
// proof takes long or will not come, onStuck is called once.
func (p *Plane) destroyEndpoint(e *endpoint, onStuck func()) (err error) {
	for try := range destroyTries {
		err = p.device.DoBlocking(func(thread *acl.BlockingThread) error { return e.comm.Close(thread) })
		switch {
		case err == nil:
			return nil
		case try == 0:
			p.log.Warn("a communicator could not be destroyed", "communicator", e.comm.Name(), "err", err)
			onStuck()
		}
		if !errors.Is(err, comm.ErrBusy) {
			return err
		}
	}
	return err
}

// The attempts to abort a stream, which take a little more than a second in total.
const (
	abortTries = 8
	abortPause = 10 * time.Millisecond // the first pause; each later pause is twice as long
)

// abortStream aborts an initiator's stream and returns the time of the abort, or zero if the library cannot abort.
// Without an abort a batch that hangs keeps the communicator forever.
func (p *Plane) abortStream(e *endpoint) time.Time {
	for try := range abortTries {
		err := p.device.Do(func(t *acl.Thread) error { return e.stream.Abort(t) })
		if err == nil {
			return time.Now()
		}
		if try == 0 {
			p.log.Warn("the stream of a communicator could not be aborted", "communicator", e.comm.Name(), "err", err)
		}
		if errors.Is(err, acl.Unsupported) {
			break
		}
		waitForHardware(abortPause << try)
	}
	return time.Time{}
}

// tearDownEndpoint ends every access by an initiator's end and blocks until there is proof (M4). The result is false if
// there will be no proof. idle says that no batch was in flight.
func (p *Plane) tearDownEndpoint(e *endpoint, idle bool, onStuck func()) bool {
	var aborted time.Time
	if !idle {
		aborted = p.abortStream(e)
		if e.hccs {
			waitForHardware(hccsDrain)
		}
	}
	err := p.destroyEndpoint(e, onStuck)
	ended := p.closeStream(e)
	switch {
	case idle: // nothing was in flight, and nothing will be
	case err == nil && e.hccs && aborted.IsZero() && !ended:
		return false // the copies belong to the stream and may still run without the communicator
	case err == nil:
		waitForHardware(waitAfterDestroy(e.hccs))
	case !aborted.IsZero():
		waitForHardware(time.Until(aborted.Add(p.cfg.residualTime(e.hccs))))
	default:
		return false
	}
	return true
}

// closeStream closes the stream and reports whether the stream and all its work are gone. If the stream could not be
// aborted, the work ends by itself now that the communicator is destroyed.
func (p *Plane) closeStream(e *endpoint) (closed bool) {
	deadline := time.Now().Add(p.cfg.TransferTimeout)
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		err := p.device.Do(func(t *acl.Thread) error { return e.stream.Close(t) })
		if err == nil {
			return true
		}
		if !errors.Is(err, acl.ErrBusy) && !errors.Is(err, acl.Timeout) || time.Now().After(deadline) {
			p.log.Warn("the stream of a communicator could not be closed", "communicator", e.comm.Name(), "err", err)
			return false
		}
		waitForHardware(pause)
	}
}

// waitForHardware waits until hardware has had time to finish. There is no context, because nothing may shorten this
// wait (M4).
func waitForHardware(d time.Duration) {
	if d > 0 {
		<-time.After(d)
	}
}
