//go:build cgo && linux

package nixl

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/communicator"
	"github.com/kvferry/kvferry/runtime/libnixl"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/epochs"
	"github.com/kvferry/kvferry/runtime/secure"
)

// SendMessage implements epochs.Executor.
func (o *initiatorExecutor) SendMessage(s communicator.Message) {
	k := kindOffer
	switch s.Kind {
	case communicator.MessageOffer:
	case communicator.MessageFenced:
		k = kindFenced
	case communicator.MessageGone:
		k = kindGone
	}
	o.sendEpoch(k, s.Epoch)
}

func (o *initiatorExecutor) sendEpoch(k kind, epoch uint64) { o.SendFrame(appendEpoch(nil, k, epoch)) }

// FormEpoch implements epochs.Executor. A new agent for the epoch connects to the target's agent; the metadata of the
// target's agent came with the accept.
func (o *initiatorExecutor) FormEpoch(epoch uint64) {
	p, metadata := o.plane, o.metadata
	p.wg.Go(func() {
		e, err := o.connectEndpoint(epoch, metadata)
		o.Push(func(now effects.Time) {
			formed := communicator.Event{Kind: communicator.Formed, Epoch: epoch, Code: effects.OK}
			if err != nil {
				if !errors.Is(err, context.Canceled) {
					o.Log.Warn("agents could not connect", "epoch", epoch, "err", err)
				}
				formed.Code = effects.Faulted
				if errors.Is(err, errPeerEnded) || errors.Is(err, context.DeadlineExceeded) {
					formed.Code = effects.Unreachable
				}
				o.StepMachine(now, formed)
				return
			}
			if epoch > 1 {
				o.Log.Info("the agents were rebuilt", "epoch", epoch)
			}
			p.updateStats(func(s *Stats) { s.FormedEpochs++ })
			// The target polls its agent from the beginning.
			o.endpoint, o.targetBusy = e, true
			o.watchAgent(epoch, e)
			o.StepMachine(now, formed)
		})
	})
}

// watchAgent fences the epoch when its agent ends with the agent's process, so that a link on which nothing is in flight
// gets another agent before the next transfer. Batches in flight fail, and their failure fences the epoch: the transfer
// that may be the cause is not to be tried again.
func (o *initiatorExecutor) watchAgent(epoch uint64, e *endpoint) {
	ended := e.agent.Ended()
	if ended == nil {
		return
	}
	closed := make(chan struct{})
	e.closed = closed
	o.plane.wg.Go(func() {
		select {
		case <-ended:
			o.Push(func(now effects.Time) {
				if o.endpoint == e && !o.hasInFlight() {
					o.StepMachine(now, communicator.Event{Kind: communicator.TargetFenced, Epoch: epoch})
				}
			})
		case <-closed:
		}
	})
}

func (o *initiatorExecutor) connectEndpoint(epoch uint64, metadata []byte) (*endpoint, error) {
	p := o.plane
	var held net.Conn
	if o.sameHost { // The target takes the end of the connection for the end of our stores (M4).
		held = secure.Beneath(o.Channel.Conn())
	}
	e, err := p.newEndpoint(agentName(o.session, epoch, sideInitiator), p.pool.Regions(), held)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(p.ctx, p.cfg.PrepareTimeout)
	defer cancel()
	here := p.scratch.addressRange()
	err = e.connectAgents(ctx, &connectParams{
		metadata: metadata, peerName: agentName(o.session, epoch, sideTarget),
		probe:          libnixl.Pair{Local: here.Address, Remote: o.probeAddress, Bytes: 1},
		noticeReceived: func() bool { return o.greetedEpoch.Load() >= epoch },
		isFenced:       func() bool { return o.fencedEpoch.Load() >= epoch },
		targetDone:     o.ReaderDone,
	})
	if err != nil {
		return nil, errors.Join(err, e.close())
	}
	return e, nil
}

// SubmitBatch implements epochs.Executor. The clock is read right before the batch is submitted (M4).
func (o *initiatorExecutor) SubmitBatch(read bool, batch []epochs.Piece, b communicator.Batch) communicator.Outcome {
	posted, err := o.endpoint.postBatch(read, batch, b.NotAfter)
	switch {
	case err != nil:
		o.Log.Warn("a batch could not be submitted", "epoch", o.Epoch(), "err", err)
		return communicator.SubmitFailed
	case !posted:
		return communicator.TooLate
	}
	o.backoff = pollBackoff{}
	var bytes uint64
	for _, piece := range batch {
		bytes += piece.Bytes
	}
	o.plane.updateStats(func(s *Stats) {
		s.Batches++
		s.Descriptors += uint64(len(batch))
		s.Bytes += bytes
	})
	return communicator.InFlight
}

// Poll implements epochs.Executor. The agent is polled, and batches that have ended are reported to the machine. The
// target is told when this node begins or ends to wait for the target's agent: batches that end inside the call need
// nothing of the target's agent.
func (o *initiatorExecutor) Poll(idle bool) {
	if idle {
		return // The link's next step polls after a pause.
	}
	for o.hasInFlight() {
		ended, err := o.endpoint.pollOldest()
		if !ended {
			break
		}
		if err != nil {
			o.Log.Warn("a batch failed", "epoch", o.Epoch(), "err", err)
		}
		o.backoff = pollBackoff{}
		o.StepMachine(plane.Now(), communicator.Event{Kind: communicator.BatchEnded, Epoch: o.Epoch(), Succeeded: err == nil})
	}
	if flying := o.hasInFlight(); o.endpoint != nil && flying != o.targetBusy {
		o.targetBusy = flying
		k := kindIdle
		if flying {
			k = kindBusy
		}
		o.sendEpoch(k, o.Epoch())
	}
}

// TearDown implements epochs.Executor. Every access of an epoch to any memory is ended. The machine learns when that is
// proven, or that there is no proof (M4).
func (o *initiatorExecutor) TearDown(d communicator.TearDown) {
	p, e := o.plane, o.endpoint
	o.endpoint = nil
	if o.LogTearDown("an epoch", d) {
		p.updateStats(func(s *Stats) { s.FencedEpochs++ })
	}
	p.wg.Go(func() {
		// Batches that have succeeded by now count.
		for len(e.posted) > 0 && !e.failed {
			if ended, err := e.pollOldest(); !ended || err != nil {
				break
			}
			o.PostEvent(communicator.Event{Kind: communicator.BatchEnded, Epoch: d.Epoch, Succeeded: true})
		}
		err := e.close()
		if err == nil && (d.InFlight == 0 || o.awaitTarget(d.Epoch)) {
			o.PostEvent(communicator.Event{Kind: communicator.TornDown, Epoch: d.Epoch})
			return
		}
		o.Log.Error("there is no proof that a fenced epoch is over; the pages of its transfers stay in quarantine", "epoch", d.Epoch,
			"err", err)
		o.PostEvent(communicator.Event{Kind: communicator.NoProof, Epoch: d.Epoch})
	})
}

// stuckTimeout is the time that a transfer in flight in a fenced epoch waits for the target's message before the
// transfer completes as not settled.
const stuckTimeout = time.Second

// awaitTarget waits until the target's agent of an epoch is destroyed. The result is false if this will never be
// known. Our own agent has been destroyed already.
func (o *initiatorExecutor) awaitTarget(epoch uint64) bool {
	late := time.NewTimer(stuckTimeout)
	defer late.Stop()
	for {
		what, moved := o.target.statusOf(epoch)
		switch what {
		case statusOver:
			return true
		case statusUnprovable:
			return false
		case statusNeedsConnEnd:
			// Our own end is settled. The target takes the end of our connection as proof of that, and closes the
			// target's side.
			o.Channel.FlushAndClose(o.ReaderDone)
			o.target.updateState(func() { o.target.messagesEnded = false })
			continue
		case statusUnknown:
		}
		select {
		case <-moved:
		case <-late.C:
			o.Log.Warn("the target has not reported the end of its agent: transfers to this target are not settled",
				"epoch", epoch)
			o.PostEvent(communicator.Event{Kind: communicator.Stuck, Epoch: epoch})
		}
	}
}
