package push

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/flows/put"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory/transfer"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

var (
	_ flow.Flow    = (*Source)(nil)
	_ flow.Carrier = (*Source)(nil)
)

// A Source carries out puts that write into the memory of the receiver: it requests pages, moves the bytes in one
// batched write, and then commits the grant if the receiver did not observe the landing itself. If a put ends in
// any other way, the Source gives the grant back.
type Source struct {
	seed         uint64
	puts         put.Table[putRow, *putRow]
	carriedCount int // the number of puts that are carried for another flow
	carriedMax   int // the limit of carried

	request      protocol.AllocRequest  `snap:"scratch"`
	layerKeys    []byte                 `snap:"scratch"` // the text of layer keys
	carriedBytes []byte                 `snap:"scratch"` // the buffer for chunks that travel in a request
	reply        protocol.AllocResponse `snap:"scratch"`
	pairs        []effects.Pair         `snap:"scratch"`
	gatherPages  []effects.Page         `snap:"scratch"` // the source pages that are gathered into the pairs
	pairByPage   table.Index            // finds pairs by remote page while a plan is made
}

// A putRow is the row of one put. The outcome of a put and the end of the row are separate events: the row
// stays until nothing touches the put's pages and the receiver has been told to commit the grant or to take the
// pages back.
type putRow struct {
	put.Row
	phase      putPhase
	abortGrant bool // the grant is to be given back and not committed
	// sentAt is the time at which the attempt in flight, or the answered one, was sent. Invariant: no write is
	// submitted later than asked plus the lease, less LeaseGuard (M4).
	sentAt effects.Time
	// firstSentAt is the time at which the first attempt was sent: the reply to a later attempt may repeat the reply to
	// the first.
	firstSentAt   effects.Time `snap:"skip"`
	transfer      transfer.Transfer
	chunksCarried bool // the last request carried the chunks themselves
	namesChunks   bool // the receiver's pages hold all layers of a chunk, so the request names chunks
}

// putPhase is the phase of a put.
type putPhase uint8

const (
	putWaiting    putPhase = iota // waits for the link, or for a place on the alloc lane
	putRequesting                 // the AllocRequest was sent
	putWriting                    // the transfer is in flight
	putSettling                   // the transfer has ended, but something may still touch the pages
	putCommitting                 // waits for the commit lane, to commit or to give back the grant
	putConfirming                 // the commit or the abort was sent
)

// Recycle returns a Source without puts. There is room for the given number of puts to the given number of peers,
// and for the given number of carried puts. The memory of f is reused, so f must not be used afterwards. seed is
// a secret of this rank.
func (f *Source) Recycle(puts, carried, peers uint32, seed uint64) Source {
	return Source{
		seed: seed, puts: f.puts.Recycle(puts+carried, peers), carriedMax: int(carried),
		request: f.request, layerKeys: f.layerKeys, carriedBytes: f.carriedBytes, reply: f.reply, pairs: f.pairs, gatherPages: f.gatherPages,
		pairByPage: f.pairByPage.Recycle(),
	}
}

// The kinds of Refs of this flow.
const (
	kindRequest  uint8 = iota + 1 // the reply to an AllocRequest
	kindTransfer                  // the transfer
	kindCommit                    // the reply to a commit or an abort
	timerPut                      // the deadline of the put, or of its last commit or abort; also the put's ticket
	timerReply                    // the time at which the peer's reply is overdue
)

func sourceRef(kind uint8, h table.Handle) kernel.Ref {
	return kernel.Ref{Owner: kernel.OwnerPushSource, Kind: kind, Subject: h}
}

// reportStage returns the stage that reports name for the put's phase.
func (p *putRow) reportStage() effects.Stage {
	switch p.phase {
	case putWriting, putSettling:
		return effects.StageTransfer
	case putCommitting, putConfirming:
		return effects.StageCommit
	case putWaiting, putRequesting:
	}
	return effects.StageAsk
}

// currentLane returns the lane on which the put's present request was sent.
func (p *putRow) currentLane() link.Lane {
	if p.phase == putRequesting {
		return link.LaneAlloc
	}
	return link.LaneCommit
}

// Step handles the replies, transfer completions and settlements of the effects that this flow requested.
func (f *Source) Step(e *flow.Env, ref kernel.Ref, ev effects.Event) {
	switch ev := ev.(type) {
	case *effects.Replied:
		f.onReplied(e, ref, ev.Body)
	case *effects.Unanswered:
		f.onUnanswered(e, ref, ev.Code)
	case *effects.TransferDone:
		f.onTransferDone(e, ref.Subject, ev)
	case *effects.Settled:
		f.onSettled(e, ref)
	default:
		kernel.PanicUnexpected("the push source")
	}
}

// startPut admits a Put command and inserts the row, unless put.AdmitPut refuses the command.
func (f *Source) startPut(e *flow.Env, t effects.Ticket, c *engine.Put) {
	a, ok := put.AdmitPut(e, t, c, f.puts.Len()-f.carriedCount, put.LimitChunks(e.Cfg, f.CountFitting(e.Cfg, c.Keys)))
	if !ok {
		return
	}
	h, p := f.puts.Add()
	*p = putRow{Row: p.Row}
	p.InitRow(e, c, &a, sourceRef(timerPut, h))
	f.queueOrFail(e, h, p, &a)
}

// queueOrFail starts a put that has a row: begin ends the put at once if the admission failed, and queues it otherwise.
func (f *Source) queueOrFail(e *flow.Env, h table.Handle, p *putRow, a *put.Admission) {
	if a.Code != effects.OK {
		p.NoRoom = true
		p.SetReason(a.Code, a.Why)
		p.deliverOutcome(e, a.Code)
		f.removePut(e, h, p)
		return
	}
	e.Timers.Set(&p.Timer, p.Deadline, sourceRef(timerPut, h))
	f.queuePut(e, h, p)
}

// queuePut queues the put for the alloc lane. A put that was requested before keeps the operation id: the
// next request is a retry.
func (f *Source) queuePut(e *flow.Env, h table.Handle, p *putRow) {
	p.phase, p.Conn = putWaiting, 0
	p.EnterPhase(e, effects.PhaseQueue)
	f.puts.QueueAlloc(e, h)
	f.sendQueued(e, p.Peer)
}

// queueCommit queues the put for the commit lane. A put that has an outcome already gets a new deadline for
// this last message.
func (f *Source) queueCommit(e *flow.Env, h table.Handle, p *putRow) {
	p.phase, p.Conn = putCommitting, 0
	p.EnterPhase(e, effects.PhasePublish)
	f.puts.QueueFinal(h, p.IsDelivered())
	if p.IsDelivered() {
		e.Timers.Set(&p.Timer, e.Now.Add(e.Cfg.ReplyTimeout), sourceRef(timerPut, h))
	}
	f.sendQueued(e, p.Peer)
}

// OnCommand takes a Put, and returns false for any other command.
func (f *Source) OnCommand(e *flow.Env, x *effects.Command) bool {
	c, ok := x.Body.(*engine.Put)
	if ok {
		f.startPut(e, x.Ticket, c)
	}
	return ok
}

// OnSignal handles a change of an outbound peer: the puts that wait for the peer are looked at again.
func (f *Source) OnSignal(e *flow.Env, ref kernel.Ref, s flow.Signal) {
	if s.Kind != flow.PeerChanged {
		kernel.PanicUnexpected("the push source")
	}
	f.sendQueued(e, ref.Subject)
}

// sendQueued advances the puts of one peer that wait for the link, for the alloc lane or for the commit lane.
//
// One step stops or sends only as many puts as it has work for. The remaining puts stay first in the queue, and
// the next call looks at these first, so no put that is to be stopped is sent.
func (f *Source) sendQueued(e *flow.Env, peer table.Handle) {
	if !f.stopBackedOff(e, peer) {
		return
	}
	if g, _ := e.Links.Outbound(peer).Gate(); g != link.GateOpen {
		for h, cause := f.puts.NextUnlinkable(e, peer); h != 0 && f.puts.MayStop(e, h); h, cause = f.puts.NextUnlinkable(e, peer) {
			f.stopPut(e, h, f.puts.Get(h), cause)
		}
		return
	}
	for h := f.puts.FirstAlloc(peer); h != 0 && put.MayRequest(e, peer); h = f.puts.FirstAlloc(peer) {
		if !f.puts.MaySend(e, h) {
			return
		}
		if p := f.puts.Get(h); p.Deadline <= e.Now {
			// The put's time ends in this step, and a request would not wait for pages. A refusal for lack of
			// pages at this instant would be no reason to open the breaker of the receiver.
			f.onDeadline(e, h, p)
			continue
		}
		conn := e.Links.AcquireLane(&e.Env, peer, link.LaneAlloc)
		if conn == 0 {
			break
		}
		f.puts.UnqueueAlloc(h)
		e.Work.SpendRows(len(f.puts.Get(h).Pages))
		f.sendAllocRequest(e, h, conn)
	}
	if h, conn := f.puts.TakeFinal(e, peer); h != 0 {
		f.sendCommitOrAbort(e, h, conn)
	}
}

// stopBackedOff ends the waiting puts of a peer for which the breaker of the peer is open (a smaller put may
// still be sent). Nothing of these puts has been sent, so their memory is returned with the outcome.
// stopBackedOff returns false if some puts are left for the next step.
func (f *Source) stopBackedOff(e *flow.Env, peer table.Handle) bool {
	for h := f.puts.NextBackedOff(e, peer); h != 0; h = f.puts.NextBackedOff(e, peer) {
		if !f.puts.MayStop(e, h) {
			return false
		}
		f.stopPut(e, h, f.puts.Get(h), effects.BackedOff)
	}
	return true
}

// OnTimer handles a deadline of this flow.
func (f *Source) OnTimer(e *flow.Env, ref kernel.Ref) {
	h := ref.Subject
	p := f.puts.Get(h)
	if ref.Kind == timerPut {
		p.Timer = 0
		f.onDeadline(e, h, p)
		return
	}
	p.OnReplyTimeout(e, p.currentLane(), ref)
}

// onDeadline ends a put when the deadline has passed.
func (f *Source) onDeadline(e *flow.Env, h table.Handle, p *putRow) {
	code, why := effects.Expired, p.TimeoutReason()
	switch p.phase {
	case putWaiting:
		why = p.WaitTimeoutReason(e)
	case putWriting:
		why.Theirs = "not all arrived"
	case putRequesting, putSettling, putCommitting, putConfirming:
	}
	p.SetReason(code, why)
	if p.phase == putWaiting {
		code = p.TimeoutCode(e)
	}
	f.stopPut(e, h, p, code)
}

// AbortCommand ends a put early, and returns false if the put has an outcome already.
func (f *Source) AbortCommand(e *flow.Env, ref kernel.Ref) bool {
	h := ref.Subject
	p := f.puts.Get(h)
	if p.IsDelivered() {
		return false
	}
	f.stopPut(e, h, p, effects.Cancelled)
	return true
}

// stopPut gives a put its outcome now, in any phase. Work that is in flight continues to the end.
func (f *Source) stopPut(e *flow.Env, h table.Handle, p *putRow, code effects.Code) {
	switch p.phase {
	case putWaiting:
		f.puts.UnqueueAlloc(h)
		p.deliverOutcome(e, code)
		f.removePut(e, h, p)
	case putRequesting: // The reply may bring a grant, which is then given back.
		e.Out.Mark(Marks.StoppedAsking)
		p.deliverOutcome(e, code)
	case putWriting: // The pages are read until the transfer has settled (M8).
		e.Out.Mark(Marks.StoppedMoving)
		p.transfer.Cancel(&e.Env)
		p.abortGrant = true
		p.deliverHeld(e, code)
	case putSettling:
		panic("BUG: a settling put has its outcome already")
	case putCommitting, putConfirming:
		e.Out.Mark(put.Marks.StoppedCommitting)
		if p.IsDelivered() { // The commit or abort took too long: the end of the lease has the same effect.
			if p.phase == putCommitting {
				f.puts.UnqueueFinal(h)
				f.removePut(e, h, p)
			}
			return
		}
		p.abortGrant = true
		p.deliverOutcome(e, code)
		if p.phase == putCommitting {
			f.puts.SetFinished(h, true)
		}
		e.Timers.Set(&p.Timer, e.Now.Add(e.Cfg.ReplyTimeout), sourceRef(timerPut, h))
	}
}

// deliverOutcome delivers the put's one outcome together with the memory. Nothing may read the pages any more.
func (p *putRow) deliverOutcome(e *flow.Env, code effects.Code) {
	p.DeliverOutcome(e, code, false, p.reportStage())
}

// deliverHeld delivers the outcome as held, because the transfer may still read the pages (M8).
func (p *putRow) deliverHeld(e *flow.Env, code effects.Code) {
	p.DeliverOutcome(e, code, true, p.reportStage())
}

// removePut removes the row of a put that has an outcome and nothing in flight.
func (f *Source) removePut(e *flow.Env, h table.Handle, p *putRow) {
	if p.Requester.Owner != kernel.OwnerNone {
		f.carriedCount--
	}
	p.ReleaseResources(e)
	f.puts.Remove(h)
}

// StartCarriedPut starts a put for another flow and returns the handle. HasRoom must have reported true.
func (f *Source) StartCarriedPut(e *flow.Env, c *flow.CarriedPut) table.Handle {
	a := put.AdmitCarried(e, c)
	h, p := f.puts.Add()
	f.carriedCount++
	*p = putRow{Row: p.Row}
	p.InitRow(e, &c.Put, &a, sourceRef(timerPut, h))
	p.BackdateReport(c.QueuedAt, c.ReadyBefore)
	p.Requester, p.Layers, p.WholeChunks, p.Epoch, p.OpeningGrant = c.Requester, c.Layers, c.WholeChunks, c.Epoch, c.OpeningGrant
	f.queueOrFail(e, h, p, &a)
	return h
}

// HasRoom reports whether one more put can be carried for another flow.
func (f *Source) HasRoom() bool { return f.carriedCount < f.carriedMax }

// StopCarriedPut cancels a carried put, unless the put has ended or has an outcome.
func (f *Source) StopCarriedPut(e *flow.Env, h table.Handle) {
	if p := f.puts.Get(h); p != nil && !p.IsDelivered() {
		f.stopPut(e, h, p, effects.Cancelled)
	}
}

// EachPut calls visit with every put.
func (f *Source) EachPut(visit func(*put.Row)) { f.puts.EachPut(visit) }

// CountUnfinished returns the number of puts that a drain waits for.
func (f *Source) CountUnfinished(e *flow.Env) int { return f.puts.CountUnfinished(e) }

// Len returns the number of puts.
func (f *Source) Len() int { return f.puts.Len() }
