//go:build cgo && linux

package nixl

import (
	"context"
	"errors"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/communicator"
	"github.com/kvferry/kvferry/runtime/libnixl"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/epochs"
)

// Say implements epochs.Hands.
func (o *outgoing) Say(s communicator.Say) {
	k := kindOffer
	switch s.Word {
	case communicator.Offer:
	case communicator.Fenced:
		k = kindFenced
	case communicator.Gone:
		k = kindGone
	}
	o.sendEpoch(k, s.Epoch)
}

func (o *outgoing) sendEpoch(k kind, epoch uint64) { o.SendFrame(appendEpoch(nil, k, epoch)) }

// Form implements epochs.Hands. A new agent for the epoch connects to the target's agent; the metadata of the target's
// agent came with the accept.
func (o *outgoing) Form(epoch uint64) {
	p, metadata := o.plane, o.metadata
	p.wg.Go(func() {
		e, err := o.makeEnd(epoch, metadata)
		o.Push(func(now effects.Time) {
			formed := communicator.Event{Kind: communicator.Formed, Epoch: epoch, Code: effects.OK}
			if err != nil {
				if !errors.Is(err, context.Canceled) {
					o.Log.Warn("agents could not connect", "epoch", epoch, "err", err)
				}
				formed.Code = effects.Faulted
				if errors.Is(err, errAlone) || errors.Is(err, context.DeadlineExceeded) {
					formed.Code = effects.Unreachable
				}
				o.Feed(now, formed)
				return
			}
			if epoch > 1 {
				o.Log.Info("the agents were rebuilt", "epoch", epoch)
			}
			p.count(func(s *Stats) { s.Formed++ })
			// The target polls its agent from the beginning.
			o.end, o.busy = e, true
			o.Feed(now, formed)
		})
	})
}

func (o *outgoing) makeEnd(epoch uint64, metadata []byte) (*end, error) {
	p := o.plane
	e, err := p.makeEnd(agentOf(o.session, epoch, atInitiator), p.pool.Regions())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(p.opening, p.cfg.PrepareTimeout)
	defer cancel()
	here := p.scratch.at()
	err = e.meet(ctx, &meeting{
		metadata: metadata, peer: agentOf(o.session, epoch, atTarget),
		probe:  libnixl.Pair{Local: here.Address, Remote: o.probe, Bytes: 1},
		met:    func() bool { return o.met.Load() >= epoch },
		fenced: func() bool { return o.fenced.Load() >= epoch },
		left:   o.Reader,
	})
	if err != nil {
		return nil, errors.Join(err, e.close())
	}
	return e, nil
}

// Submit implements epochs.Hands. The clock is read right before the batch is submitted (M4).
func (o *outgoing) Submit(read bool, batch []epochs.Piece, b communicator.Batch) communicator.Outcome {
	posted, err := o.end.post(read, batch, func() bool { return plane.Now() > b.NotAfter })
	switch {
	case err != nil:
		o.Log.Warn("a batch could not be submitted", "epoch", o.Epoch(), "err", err)
		return communicator.Broken
	case !posted:
		return communicator.TooLate
	}
	o.pauses = pauses{}
	var bytes uint64
	for _, piece := range batch {
		bytes += piece.Bytes
	}
	o.plane.count(func(s *Stats) {
		s.Batches++
		s.Descriptors += uint64(len(batch))
		s.Bytes += bytes
	})
	return communicator.Done
}

// Look implements epochs.Hands. The agent is polled, and batches that have ended are reported to the machine. The
// target is told when this node begins or ends to wait for the target's agent: batches that end inside the call need
// nothing of the target's agent.
func (o *outgoing) Look(idle bool) {
	if idle {
		return // The link's next step polls after a pause.
	}
	for o.inFlight() {
		ended, err := o.end.pollOldest()
		if !ended {
			break
		}
		if err != nil {
			o.Log.Warn("a batch failed", "epoch", o.Epoch(), "err", err)
		}
		o.pauses = pauses{}
		o.Feed(plane.Now(), communicator.Event{Kind: communicator.BatchEnded, Epoch: o.Epoch(), Well: err == nil})
	}
	if flying := o.inFlight(); o.end != nil && flying != o.busy {
		o.busy = flying
		k := kindIdle
		if flying {
			k = kindBusy
		}
		o.sendEpoch(k, o.Epoch())
	}
}

// TearDown implements epochs.Hands. Every access of an epoch to any memory is ended. The machine learns when that is
// proven, or that there is no proof (M4).
func (o *outgoing) TearDown(d communicator.TearDown) {
	p, e := o.plane, o.end
	o.end = nil
	if o.Fenced("an epoch", d) {
		p.count(func(s *Stats) { s.Fenced++ })
	}
	p.wg.Go(func() {
		// Batches that have succeeded by now count.
		for len(e.flights) > 0 && !e.failed {
			if ended, err := e.pollOldest(); !ended || err != nil {
				break
			}
			o.PostEvent(communicator.Event{Kind: communicator.BatchEnded, Epoch: d.Epoch, Well: true})
		}
		err := e.close()
		if err == nil && (d.Flying == 0 || o.awaitTarget(d.Epoch)) {
			o.PostEvent(communicator.Event{Kind: communicator.TornDown, Epoch: d.Epoch})
			return
		}
		o.Log.Error("there is no proof that a fenced epoch is over; its pages stay in quarantine", "epoch", d.Epoch,
			"err", err)
		o.PostEvent(communicator.Event{Kind: communicator.NoProof, Epoch: d.Epoch})
	})
}

// stuckAfter is the time that a transfer in flight in a fenced epoch waits for the target's message before the
// transfer completes as not settled.
const stuckAfter = time.Second

// awaitTarget waits until the target's agent of an epoch is destroyed. The result is false if this will never be
// known. Our own agent has been destroyed already.
func (o *outgoing) awaitTarget(epoch uint64) bool {
	late := time.NewTimer(stuckAfter)
	defer late.Stop()
	for {
		what, moved := o.target.verdictOf(epoch)
		switch what {
		case over:
			return true
		case never:
			return false
		case unheard:
			// Our own end is settled. The target takes the end of our connection as proof of that, and closes the
			// target's side.
			o.Channel.Finish(o.Reader)
			o.target.update(func() { o.target.deaf = false })
			continue
		case unknown:
		}
		select {
		case <-moved:
		case <-late.C:
			o.Log.Warn("the target has not reported the end of its agent: transfers to it are not settled",
				"epoch", epoch)
			o.PostEvent(communicator.Event{Kind: communicator.Stuck, Epoch: epoch})
		}
	}
}
