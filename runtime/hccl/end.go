//go:build cgo && linux

package hccl

import (
	"errors"
	"fmt"
	"time"

	"github.com/kvferry/kvferry/runtime/acl"
	"github.com/kvferry/kvferry/runtime/hccl/comm"
)

// A pair holds the parameters from which both ends of a link make the communicators of all epochs.
type pair struct {
	session [16]byte
	table   []byte // the rank table
	rank    uint32 // our rank in the table
	regions int    // number of regions that the peer binds
	hccs    bool
}

// name returns the name of an epoch's communicator. The name is unique because the session is random and no epoch
// number is used twice.
func (p *pair) name(epoch uint64) string { return fmt.Sprintf("kvf-%x-%d", p.session, epoch) }

// An end is this node's end of a communicator. The initiator's end also has the stream of the batches.
type end struct {
	comm   *comm.Comm
	stream *acl.Stream
	hccs   bool
}

// makeEnd makes this node's end of a communicator, binds the pool's memory and meets the peer. The call blocks for up
// to three times PrepareTimeout. After an error, destroyed reports whether the end was destroyed again.
func (p *Plane) makeEnd(pair *pair, epoch uint64, root []byte, withStream bool) (e *end, gone bool, err error) {
	o := comm.CommOptions{
		Name: pair.name(epoch), Rank: pair.rank, Table: pair.table,
		TrafficClass: p.cfg.TrafficClass, ServiceLevel: p.cfg.ServiceLevel, CloseTimeout: p.cfg.DestroyTimeout,
	}
	if p.cfg.RootInfo {
		o.Table, o.RootInfo = nil, root
	}
	e = &end{hccs: pair.hccs}
	err = p.ctx.Apart(func(guest *acl.Guest) (err error) {
		if e.comm, err = p.lib.NewComm(guest, o); err != nil {
			return err
		}
		if err = e.comm.Bind(guest, p.regions...); err != nil {
			return err
		}
		return e.comm.Prepare(guest, p.cfg.PrepareTimeout, pair.regions)
	})
	if err == nil && withStream {
		err = p.ctx.Do(func(t *acl.Thread) (err error) {
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
	failed := p.destroy(e, func() {})
	return nil, failed == nil, errors.Join(err, failed)
}

// busyTries is the number of attempts to destroy a busy communicator, each of which takes seconds.
const busyTries = 20

// destroy destroys this node's end of the communicator. A nil error is the proof that the end is gone. If the proof
// takes long or will not come, onStuck is called once.
func (p *Plane) destroy(e *end, stuck func()) (err error) {
	for try := range busyTries {
		err = p.ctx.Apart(func(guest *acl.Guest) error { return e.comm.Close(guest) })
		switch {
		case err == nil:
			return nil
		case try == 0:
			p.log.Warn("a communicator could not be destroyed", "communicator", e.comm.Name(), "err", err)
			stuck()
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

// abort aborts an initiator's stream and returns the time of the abort, or zero if the library cannot abort. Without an
// abort a batch that hangs keeps the communicator forever.
func (p *Plane) abort(e *end) time.Time {
	for try := range abortTries {
		err := p.ctx.Do(func(t *acl.Thread) error { return e.stream.Abort(t) })
		if err == nil {
			return time.Now()
		}
		if try == 0 {
			p.log.Warn("the stream of a communicator could not be aborted", "communicator", e.comm.Name(), "err", err)
		}
		if errors.Is(err, acl.Unsupported) {
			break
		}
		pass(abortPause << try)
	}
	return time.Time{}
}

// tearDown ends every access by an initiator's end and blocks until there is proof (M4). The result is false if there
// will be no proof. idle says that no batch was in flight.
func (p *Plane) tearDown(e *end, quiet bool, stuck func()) bool {
	var aborted time.Time
	if !quiet {
		aborted = p.abort(e)
		if e.hccs {
			pass(hccsDrain)
		}
	}
	err := p.destroy(e, stuck)
	ended := p.dropStream(e)
	switch {
	case quiet: // nothing was in flight, and nothing will be
	case err == nil && e.hccs && aborted.IsZero() && !ended:
		return false // the copies belong to the stream and may still run without the communicator
	case err == nil:
		pass(afterDestroy(e.hccs))
	case !aborted.IsZero():
		pass(time.Until(aborted.Add(p.cfg.residual(e.hccs))))
	default:
		return false
	}
	return true
}

// dropStream closes the stream and reports whether the stream and all its work are gone. If the stream could not be
// aborted, the work ends by itself now that the communicator is destroyed.
func (p *Plane) dropStream(e *end) (gone bool) {
	deadline := time.Now().Add(p.cfg.TransferTimeout)
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		err := p.ctx.Do(func(t *acl.Thread) error { return e.stream.Close(t) })
		if err == nil {
			return true
		}
		if !errors.Is(err, acl.ErrBusy) && !errors.Is(err, acl.Timeout) || time.Now().After(deadline) {
			p.log.Warn("the stream of a communicator stays", "communicator", e.comm.Name(), "err", err)
			return false
		}
		pass(pause)
	}
}

// pass waits until hardware has had time to finish. There is no context, because nothing may shorten this wait (M4).
func pass(d time.Duration) {
	if d > 0 {
		<-time.After(d)
	}
}
