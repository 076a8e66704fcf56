package pull

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/flows/put"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/peers/lease"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

var _ flow.Lender = (*Source)(nil)

// A Source carries out puts that the receiver reads: it leases the pages, tells the receiver where the pages are,
// and waits for the reader's done message or for the end of the lease.
//
// The reply to an offer gives the put its outcome, and the end of the lease returns the memory; the two happen in
// either order. If no reply arrives, the put ends at the deadline. The pages stay leased for as long as they may
// be read.
type Source struct {
	cfg       SourceConfig `snap:"share"`
	puts      put.Table[putRow, *putRow]
	pullIDs   pullIDTable
	roomQueue // the peers that wait for room below the high-water mark

	offer       protocol.PullReadyNotif   `snap:"scratch"`
	ack         protocol.PullReadyDoneAck `snap:"scratch"`
	doneMessage protocol.PullDoneSignal   `snap:"scratch"`
}

// SourceConfig is the configuration of a Source.
type SourceConfig struct {
	OfferSettings
	PutsMax  uint32
	PagesMax uint32 // the largest number of pages leased at a time
	SenderID []byte // the name that LMCache gives to this sender in offers
	DoneURL  []byte // the address for done messages of receivers
	RenewURL []byte // the address for renewals; empty: no renewals
}

// A putRow is the row of one put. The row stays until the put has its outcome, no message about the put is to
// be sent, and none of its pages is leased.
type putRow struct {
	put.Row
	phase  putPhase
	pullID protocol.PullID // the id by which the reader's done message names the offer
	// lease is the read lease of the put's pages. Invariant: while the lease is out, the pages are not returned
	// to the engine (M8).
	lease         lease.Owner
	wasRead       bool // the reader reported that all chunks were read
	withdrawalDue bool // the offer was taken back, and the peer has yet to be notified
	// The reader has once refused the offer as expired, because its comparison of the two clocks was old, and
	// compares anew. The repetition counts as no attempt. With a limit of one attempt, puts that are rarer than
	// the time for which a comparison is good would otherwise always fail.
	clockRetried bool
}

// putPhase is the phase of a put.
type putPhase uint8

const (
	// waits for the link, for a place on the alloc lane, or for room below the high-water mark
	putWaiting  putPhase = iota
	putOffering          // the PullReadyNotif was sent
	// acknowledged, or no acknowledgement is awaited any more; the pages are leased
	putOffered
	putWithdrawing // waits for the commit lane to send the withdrawal, or has sent that
)

// Recycle returns a Source without puts, with room for puts to the given number of peers. The memory of f is
// reused, so f must not be used afterwards. seed is a secret of this rank.
func (f *Source) Recycle(cfg SourceConfig, peers uint32, seed uint64) Source {
	return Source{
		cfg: cfg, puts: f.puts.Recycle(cfg.PutsMax, peers),
		pullIDs:   f.pullIDs.recycle(seed),
		roomQueue: roomQueue{isWaiting: table.RecycleSlice(f.isWaiting, int(peers)), waitingPeers: f.waitingPeers[:0]},
		offer:     f.offer, ack: f.ack, doneMessage: f.doneMessage,
	}
}

// The kinds of Refs of this flow.
const (
	kindOffer      uint8 = iota + 1 // the reply to a PullReadyNotif
	kindWithdrawal                  // the reply to a withdrawal
	kindLease                       // the read grant and the end of the lease's time
	timerPut                        // the deadline of the put, or of its withdrawal; also the put's ticket
	timerReply                      // the time at which the peer's reply is overdue
)

func sourceRef(kind uint8, h table.Handle) kernel.Ref {
	return kernel.Ref{Owner: kernel.OwnerPullSource, Kind: kind, Subject: h}
}

// reportStage returns the stage that reports name for the put's phase.
func (p *putRow) reportStage() effects.Stage {
	switch p.phase {
	case putWithdrawing:
		return effects.StageCommit
	case putWaiting, putOffering, putOffered:
	}
	return effects.StageOffer
}

// currentLane returns the lane on which the put's present message was sent.
func (p *putRow) currentLane() link.Lane {
	if p.phase == putOffering {
		return link.LaneAlloc
	}
	return link.LaneCommit
}

// Step handles replies to this flow's messages, and the proof that a revocation has taken effect.
func (f *Source) Step(e *flow.Env, ref kernel.Ref, ev effects.Event) {
	switch ev := ev.(type) {
	case *effects.Replied:
		f.onReplied(e, ref, ev.Body)
	case *effects.Unanswered:
		f.onUnanswered(e, ref, ev.Code)
	case *effects.Revoked: // Proof: nothing reads the leased pages any more.
		if p := f.puts.Get(ref.Subject); p.lease.OnRevoked(&e.Env) {
			p.returnHeldPages(e)
			f.continuePut(e, ref.Subject, p)
		}
	default:
		kernel.PanicUnexpected("the pull source")
	}
}

// OnCommand takes a Put, and returns false for any other command.
func (f *Source) OnCommand(e *flow.Env, x *effects.Command) bool {
	c, ok := x.Body.(*engine.Put)
	if ok {
		f.startPut(e, x.Ticket, c)
	}
	return ok
}

// ServedTag reports that the Source takes the done messages of readers.
func (f *Source) ServedTag(c effects.Channel) (protocol.Tag, bool) {
	return protocol.TagNone, c == effects.ChannelDone
}

// HandleMessage takes a done message.
func (f *Source) HandleMessage(e *flow.Env, x *effects.Received) { f.handleDone(e, x) }

// OnSignal handles a change of an outbound peer, by which waiting puts may proceed. It also handles a reader's
// statement, beside a renewal, that the leased pages are not read any more.
func (f *Source) OnSignal(e *flow.Env, ref kernel.Ref, s flow.Signal) {
	switch s.Kind {
	case flow.PeerChanged:
		f.sendQueued(e, ref.Subject)
	case flow.LeaseEnded:
		p := f.puts.Get(ref.Subject)
		p.endLease(e)
		f.continuePut(e, ref.Subject, p)
	case flow.RequestRefused, flow.LandingEnded:
		kernel.PanicUnexpected("the pull source")
	}
}

// OnTimer handles a deadline of this flow.
func (f *Source) OnTimer(e *flow.Env, ref kernel.Ref) {
	h := ref.Subject
	p := f.puts.Get(h)
	switch ref.Kind {
	case timerPut:
		p.Timer = 0
		f.onDeadline(e, h, p)
	case timerReply:
		p.OnReplyTimeout(e, p.currentLane(), ref)
	case kindLease:
		f.onLeaseExpired(e, h, p)
	}
}

// startPut admits a Put command, inserts the row and queues the put, unless put.AdmitPut refuses the command.
func (f *Source) startPut(e *flow.Env, t effects.Ticket, c *engine.Put) {
	a, ok := put.AdmitPut(e, t, c, f.puts.Len(), f.chunkLimit(e, c.Keys))
	if !ok {
		return
	}
	h, p := f.puts.Add()
	*p = putRow{Row: p.Row}
	p.InitRow(e, c, &a, sourceRef(timerPut, h))
	if a.Code != effects.OK {
		p.SetReason(a.Code, a.Why)
		p.deliverOutcome(e, a.Code)
		f.removePut(e, h, p)
		return
	}
	p.pullID = f.pullIDs.newID(h)
	e.Timers.Set(&p.Timer, p.Deadline, sourceRef(timerPut, h))
	f.queuePut(e, h, p)
}

// onDeadline ends a put when the deadline has passed.
func (f *Source) onDeadline(e *flow.Env, h table.Handle, p *putRow) {
	code, why := effects.Expired, p.TimeoutReason()
	if p.phase == putWaiting {
		why = p.WaitTimeoutReason(e)
		if f.isWaiting[p.Peer.Slot()] {
			why.Stage, why.Theirs = effects.StageMemory, ""
			why.Ours += ", with " + formatCount(e.Pool.LeasedPages()) + " of " + formatCount(f.cfg.PagesMax) + " pages lent"
		}
	}
	p.SetReason(code, why)
	if p.phase == putWaiting {
		code = p.TimeoutCode(e)
	}
	f.stopPut(e, h, p, code)
}

// AbortCommand ends a put early, or takes the offer back after the outcome, and returns false if there was nothing to
// end.
func (f *Source) AbortCommand(e *flow.Env, ref kernel.Ref) bool {
	h := ref.Subject
	p := f.puts.Get(h)
	if p.IsDelivered() && (p.phase != putOffered || !p.lease.IsInForce()) {
		return false
	}
	f.stopPut(e, h, p, effects.Cancelled)
	return true
}

// stopPut gives a put its outcome now, in any phase. Work that is in flight continues to the end.
func (f *Source) stopPut(e *flow.Env, h table.Handle, p *putRow, code effects.Code) {
	switch p.phase {
	case putWaiting:
		f.unqueuePut(p, h)
		if p.lease.MayBeRead() {
			f.withdrawOffer(e, h, p, code)
			return
		}
		p.deliverOutcome(e, code)
		f.removePut(e, h, p)
	case putOffering, putOffered:
		e.Out.Mark(Marks.StoppedOffered)
		f.withdrawOffer(e, h, p, code)
	case putWithdrawing: // The withdrawal took too long: the end of the lease has the same effect.
		e.Out.Mark(put.Marks.StoppedCommitting)
		if p.Conn == 0 {
			f.puts.UnqueueFinal(h)
			f.removeIfUnleased(e, h, p)
		}
	}
}

// deliverOutcome delivers the put's one outcome, together with the memory unless the pages may still be read (M8).
func (p *putRow) deliverOutcome(e *flow.Env, code effects.Code) {
	p.DeliverOutcome(e, code, p.lease.MayBeRead(), p.reportStage())
}

// removePut removes the row of a put that has an outcome and nothing in flight.
func (f *Source) removePut(e *flow.Env, h table.Handle, p *putRow) {
	p.ReleaseResources(e)
	if p.pullID != (protocol.PullID{}) {
		f.pullIDs.removeID(p.pullID, h)
	}
	f.puts.Remove(h)
}

// EachPut calls visit with every put.
func (f *Source) EachPut(visit func(*put.Row)) { f.puts.EachPut(visit) }

// EachLease calls visit with every put whose pages the peer may read, in the order of the slots.
func (f *Source) EachLease(visit func(*put.Row)) {
	for slot := range f.puts.Slots() {
		if p := f.puts.Get(f.puts.At(slot)); p != nil && p.lease.IsInForce() {
			visit(&p.Row)
		}
	}
}

// CountUnfinished returns the number of puts that a drain waits for.
func (f *Source) CountUnfinished(e *flow.Env) int { return f.puts.CountUnfinished(e) }

// Len returns the number of puts.
func (f *Source) Len() int { return f.puts.Len() }
