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

// A Source is the flow of puts that their receiver reads: it leases the pages, says where they are, and waits for the
// reader's word, or the end of the time that it has.
//
// The answer to an offer gives the put its outcome, the end of the lease its memory; they come in either order. An
// answer that never comes ends the put in time. Its pages stay leased for as long as they may be read.
type Source struct {
	cfg     SourceConfig `snap:"share"`
	puts    put.Table[outgoing, *outgoing]
	pulls   pulls
	blocked // peers whose first put does not fit below the high-water mark

	offer protocol.PullReadyNotif   `snap:"scratch"`
	ack   protocol.PullReadyDoneAck `snap:"scratch"`
	done  protocol.PullDoneSignal   `snap:"scratch"`
}

// SourceConfig is what this flow alone goes by.
type SourceConfig struct {
	PutsMax   uint32
	TTL       effects.Duration // how long an offer stands
	HighWater uint32           // most pages that are leased at a time
	SenderID  []byte           // LMCache's name for us in offers
	DoneURL   []byte           // where receivers tell that they have read
	RenewURL  []byte           // where they ask for more time; empty: nowhere
}

type outgoing struct {
	put.Row
	phase     sourcePhase
	id        protocol.PullID // by which its reader speaks of it
	lease     lease.Owner     // of its pages
	read      bool            // its reader said that it has everything
	withdrawn bool            // it was taken back, and the peer is to be told
	// Its reader found the lease over once, by a comparison of clocks that was old, and compares anew. That costs no
	// attempt: with one attempt alone, puts that are rarer than comparisons last would fail for ever.
	compared bool
}

// sourcePhase is where a put stands.
type sourcePhase uint8

const (
	sourceWaiting     sourcePhase = iota // for the link, or for its turn on the alloc lane, or for room to lend
	sourceOffering                       // PullReadyNotif sent
	sourceOffered                        // acknowledged, or not to be any more; its pages are leased
	sourceWithdrawing                    // waits for the commit lane, to withdraw its offer, or has sent that
)

// Emptied has room for its puts to so many peers, in the memory of f, which is not used any more. seed is a secret of
// this rank.
func (f *Source) Emptied(cfg SourceConfig, peers uint32, seed uint64) Source {
	return Source{
		cfg: cfg, puts: f.puts.Emptied(cfg.PutsMax, peers),
		pulls:   f.pulls.emptied(seed),
		blocked: blocked{is: table.Zeroed(f.is, int(peers)), line: f.line[:0]},
		offer:   f.offer, ack: f.ack, done: f.done,
	}
}

// What a Ref of this flow is for.
const (
	sourceOffer    uint8 = iota + 1 // a PullReadyNotif
	sourceWithdraw                  // one that takes an offer back
	sourceLease                     // its read grant, and when that is over
	sourceDeadline                  // when it must have ended, or its last errand is given up; also its ticket
	sourceAnswer                    // when a peer's answer is overdue
)

func sourceRef(kind uint8, h table.Handle) kernel.Ref {
	return kernel.Ref{Owner: kernel.OwnerPullSource, Kind: kind, Subject: h}
}

// stage is how far a put is.
func (p *outgoing) stage() effects.Stage {
	switch p.phase {
	case sourceWithdrawing:
		return effects.StageCommit
	case sourceWaiting, sourceOffering, sourceOffered:
	}
	return effects.StageOffer
}

// lane is the one that a question of a put is on.
func (p *outgoing) lane() link.Lane {
	if p.phase == sourceOffering {
		return link.LaneAlloc
	}
	return link.LaneCommit
}

// Step takes a Put, a reader's done, or what became of what this flow asked for.
func (f *Source) Step(e *flow.Env, ref kernel.Ref, ev effects.Event) {
	switch ev := ev.(type) {
	case *effects.Command:
		f.take(e, ev.Ticket, ev.Body.(*engine.Put))
	case *effects.Received:
		f.onDone(e, ev)
	case *effects.Replied:
		f.onReplied(e, ref, ev.Body)
	case *effects.Unanswered:
		f.onUnanswered(e, ref, ev.Code)
	case *effects.Revoked: // The proof that nobody reads what was leased any more.
		if p := f.puts.Get(ref.Subject); p.lease.Revoked(&e.Env) {
			p.leaseOver(e)
			f.answered(e, ref.Subject, p)
		}
	default:
		kernel.Foreign("who offers")
	}
}

// Signal is told that an outbound peer changed, who waits for it goes on; or that a reader said, beside a renewal, that
// it reads no more of what is leased.
func (f *Source) Signal(e *flow.Env, ref kernel.Ref, s flow.Signal) {
	switch s.Kind {
	case flow.Changed:
		f.pump(e, ref.Subject)
	case flow.LeaseEnded:
		p := f.puts.Get(ref.Subject)
		p.endLease(e)
		f.answered(e, ref.Subject, p)
	case flow.Reached, flow.Refused, flow.Ended:
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

// take begins with a put.
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

// onDeadline ends a put whose time is up.
func (f *Source) onDeadline(e *flow.Env, h table.Handle, p *outgoing) {
	code, why := effects.Expired, p.OutOfTime()
	if p.phase == sourceWaiting {
		why = p.OutOfTimeWaiting(e)
		if f.is[p.Peer.Slot()] {
			why.Stage, why.Theirs = effects.StageMemory, ""
			why.Ours += ", with " + number(e.Pool.Lent()) + " of " + number(f.cfg.HighWater) + " pages lent"
		}
	}
	p.Blame(code, why)
	if p.phase == sourceWaiting {
		code = p.TooLate(e)
	}
	f.stop(e, h, p, code)
}

// Abort ends a put early, or takes back its offer, and says whether there was anything to end.
func (f *Source) Abort(e *flow.Env, ref kernel.Ref) bool {
	h := ref.Subject
	p := f.puts.Get(h)
	if p.Delivered() && (p.phase != sourceOffered || !p.lease.Stands()) {
		return false
	}
	f.stop(e, h, p, effects.Cancelled)
	return true
}

// stop gives a put its outcome now, wherever it stands; what is under way goes on to its own end without it.
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
	case sourceWithdrawing: // Its last errand took too long: the end of the lease does the same.
		e.Out.Mark(put.Marks.StoppedCommitting)
		if p.Conn == 0 {
			f.puts.UnqueueLast(h)
			f.finish(e, h, p)
		}
	}
}

// deliver gives a put its one outcome, and its memory with it unless that may still be read.
func (p *outgoing) deliver(e *flow.Env, code effects.Code) {
	p.Outcome(e, code, p.lease.Out(), p.stage())
}

// end removes a put that has its outcome and nothing under way.
func (f *Source) end(e *flow.Env, h table.Handle, p *outgoing) {
	p.LetGo(e)
	if p.id != (protocol.PullID{}) {
		f.pulls.forget(p.id, h)
	}
	f.puts.Remove(h)
}

// Left counts what a drain waits for.
func (f *Source) Left(e *flow.Env) int { return f.puts.Left(e) }

// Len is the number of puts.
func (f *Source) Len() int { return f.puts.Len() }
