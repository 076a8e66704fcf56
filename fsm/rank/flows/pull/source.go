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
	cfg     SourceConfig `snap:"share"`
	puts    put.Table[outgoing, *outgoing]
	pulls   pulls
	blocked // the peers that wait for room below the high-water mark

	offer protocol.PullReadyNotif   `snap:"scratch"`
	ack   protocol.PullReadyDoneAck `snap:"scratch"`
	done  protocol.PullDoneSignal   `snap:"scratch"`
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

// An outgoing is the row of one put. The row stays until the put has its outcome, no message about the put is to
// be sent, and none of its pages is leased.
type outgoing struct {
	put.Row
	phase sourcePhase
	id    protocol.PullID // the id by which the reader's done message names the offer
	// lease is the read lease of the put's pages. Invariant: while the lease is out, the pages are not returned
	// to the engine (M8).
	lease     lease.Owner
	read      bool // the reader reported that all chunks were read
	withdrawn bool // the offer was taken back, and the peer has yet to be notified
	// The reader has once refused the offer as expired, because its comparison of the two clocks was old, and
	// compares anew. The repetition counts as no attempt. With a limit of one attempt, puts that are rarer than
	// the time for which a comparison is good would otherwise always fail.
	compared bool
}

// sourcePhase is the phase of a put.
type sourcePhase uint8

const (
	// waits for the link, for a place on the alloc lane, or for room below the high-water mark
	sourceWaiting  sourcePhase = iota
	sourceOffering             // the PullReadyNotif was sent
	// acknowledged, or no acknowledgement is awaited any more; the pages are leased
	sourceOffered
	sourceWithdrawing // waits for the commit lane to send the withdrawal, or has sent that
)

// Emptied returns a Source without puts, with room for puts to the given number of peers. The memory of f is
// reused, so f must not be used afterwards. seed is a secret of this rank.
func (f *Source) Emptied(cfg SourceConfig, peers uint32, seed uint64) Source {
	return Source{
		cfg: cfg, puts: f.puts.Emptied(cfg.PutsMax, peers),
		pulls:   f.pulls.emptied(seed),
		blocked: blocked{is: table.Zeroed(f.is, int(peers)), line: f.line[:0]},
		offer:   f.offer, ack: f.ack, done: f.done,
	}
}

// The kinds of Refs of this flow.
const (
	sourceOffer    uint8 = iota + 1 // the reply to a PullReadyNotif
	sourceWithdraw                  // the reply to a withdrawal
	sourceLease                     // the read grant and the end of the lease's time
	sourceDeadline                  // the deadline of the put, or of its withdrawal; also the put's ticket
	sourceAnswer                    // the time at which the peer's reply is overdue
)

func sourceRef(kind uint8, h table.Handle) kernel.Ref {
	return kernel.Ref{Owner: kernel.OwnerPullSource, Kind: kind, Subject: h}
}

// stage returns the stage that reports name for the put's phase.
func (p *outgoing) stage() effects.Stage {
	switch p.phase {
	case sourceWithdrawing:
		return effects.StageCommit
	case sourceWaiting, sourceOffering, sourceOffered:
	}
	return effects.StageOffer
}

// lane returns the lane on which the put's present message was sent.
func (p *outgoing) lane() link.Lane {
	if p.phase == sourceOffering {
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
		if p := f.puts.Get(ref.Subject); p.lease.Revoked(&e.Env) {
			p.leaseOver(e)
			f.answered(e, ref.Subject, p)
		}
	default:
		kernel.Foreign("who offers")
	}
}

// Command takes a Put, and returns false for any other command.
func (f *Source) Command(e *flow.Env, x *effects.Command) bool {
	c, ok := x.Body.(*engine.Put)
	if ok {
		f.take(e, x.Ticket, c)
	}
	return ok
}

// Serves reports that the Source takes the done messages of readers.
func (f *Source) Serves(c effects.Channel) (protocol.Tag, bool) {
	return protocol.TagNone, c == effects.ChannelDone
}

// Receive takes a done message.
func (f *Source) Receive(e *flow.Env, x *effects.Received) { f.onDone(e, x) }

// Signal handles a change of an outbound peer, by which waiting puts may proceed. It also handles a reader's
// statement, beside a renewal, that the leased pages are not read any more.
func (f *Source) Signal(e *flow.Env, ref kernel.Ref, s flow.Signal) {
	switch s.Kind {
	case flow.Changed:
		f.pump(e, ref.Subject)
	case flow.LeaseEnded:
		p := f.puts.Get(ref.Subject)
		p.endLease(e)
		f.answered(e, ref.Subject, p)
	case flow.Refused, flow.Ended:
		kernel.Foreign("who offers")
	}
}

// Due handles a deadline of this flow.
func (f *Source) Due(e *flow.Env, ref kernel.Ref) {
	h := ref.Subject
	p := f.puts.Get(h)
	switch ref.Kind {
	case sourceDeadline:
		p.Timer = 0
		f.onDeadline(e, h, p)
	case sourceAnswer:
		p.Overdue(e, p.lane(), ref)
	case sourceLease:
		f.onLeaseOver(e, h, p)
	}
}

// take admits a Put command, inserts the row and queues the put, unless put.Admit refuses the command.
func (f *Source) take(e *flow.Env, t effects.Ticket, c *engine.Put) {
	a, ok := put.Admit(e, t, c, f.puts.Len(), f.fitting(e, c.Keys))
	if !ok {
		return
	}
	h, p := f.puts.Add()
	*p = outgoing{Row: p.Row}
	p.Begin(e, c, &a, sourceRef(sourceDeadline, h))
	if a.Code != effects.OK {
		p.Blame(a.Code, a.Why)
		p.deliver(e, a.Code)
		f.end(e, h, p)
		return
	}
	p.id = f.pulls.draw(h)
	e.Timers.Set(&p.Timer, p.Deadline, sourceRef(sourceDeadline, h))
	f.becomeWaiting(e, h, p)
}

// onDeadline ends a put when the deadline has passed.
func (f *Source) onDeadline(e *flow.Env, h table.Handle, p *outgoing) {
	code, why := effects.Expired, p.OutOfTime()
	if p.phase == sourceWaiting {
		why = p.OutOfTimeWaiting(e)
		if f.is[p.Peer.Slot()] {
			why.Stage, why.Theirs = effects.StageMemory, ""
			why.Ours += ", with " + number(e.Pool.Lent()) + " of " + number(f.cfg.PagesMax) + " pages lent"
		}
	}
	p.Blame(code, why)
	if p.phase == sourceWaiting {
		code = p.TooLate(e)
	}
	f.stop(e, h, p, code)
}

// Abort ends a put early, or takes the offer back after the outcome, and returns false if there was nothing to
// end.
func (f *Source) Abort(e *flow.Env, ref kernel.Ref) bool {
	h := ref.Subject
	p := f.puts.Get(h)
	if p.Delivered() && (p.phase != sourceOffered || !p.lease.Stands()) {
		return false
	}
	f.stop(e, h, p, effects.Cancelled)
	return true
}

// stop gives a put its outcome now, in any phase. Work that is in flight continues to the end.
func (f *Source) stop(e *flow.Env, h table.Handle, p *outgoing, code effects.Code) {
	switch p.phase {
	case sourceWaiting:
		f.unqueue(p, h)
		if p.lease.Out() {
			f.withdraw(e, h, p, code)
			return
		}
		p.deliver(e, code)
		f.end(e, h, p)
	case sourceOffering, sourceOffered:
		e.Out.Mark(Marks.StoppedOffered)
		f.withdraw(e, h, p, code)
	case sourceWithdrawing: // The withdrawal took too long: the end of the lease has the same effect.
		e.Out.Mark(put.Marks.StoppedCommitting)
		if p.Conn == 0 {
			f.puts.UnqueueLast(h)
			f.finish(e, h, p)
		}
	}
}

// deliver delivers the put's one outcome, together with the memory unless the pages may still be read (M8).
func (p *outgoing) deliver(e *flow.Env, code effects.Code) {
	p.Outcome(e, code, p.lease.Out(), p.stage())
}

// end removes the row of a put that has an outcome and nothing in flight.
func (f *Source) end(e *flow.Env, h table.Handle, p *outgoing) {
	p.LetGo(e)
	if p.id != (protocol.PullID{}) {
		f.pulls.forget(p.id, h)
	}
	f.puts.Remove(h)
}

// Left returns the number of puts that a drain waits for.
func (f *Source) Left(e *flow.Env) int { return f.puts.Left(e) }

// Len returns the number of puts.
func (f *Source) Len() int { return f.puts.Len() }
