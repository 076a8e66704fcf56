package p2p

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/table"
)

// Step handles completions of the requester's requests and transfers.
func (f *Requester) Step(e *flow.Env, ref kernel.Ref, ev effects.Event) {
	switch x := ev.(type) {
	case *effects.Replied:
		f.onReplied(e, ref.Kind, ref.Subject, x.Body)
	case *effects.Unanswered:
		f.onUnanswered(e, ref.Kind, ref.Subject, x.Code)
	case *effects.TransferDone:
		f.onTransferDone(e, ref.Subject, x)
	case *effects.Settled:
		f.onSettled(e, ref.Subject)
	case *effects.Verified:
		f.onVerified(e, ref.Subject, x)
	default:
		kernel.PanicUnexpected("the p2p requester")
	}
}

// OnCommand handles a Bring or a Locate. It returns false for other commands.
func (f *Requester) OnCommand(e *flow.Env, x *effects.Command) bool {
	switch c := x.Body.(type) {
	case *Bring:
		f.startBring(e, x.Ticket, c)
	case *Locate:
		f.Searches.startLocate(e, x.Ticket, c, f.timeoutOrDefault(c.Timeout))
	default:
		return false
	}
	return true
}

// OnTimer handles a deadline: of a search, of a reply (timerReply), or of a get.
func (f *Requester) OnTimer(e *flow.Env, ref kernel.Ref) {
	h := ref.Subject
	if ref.Kind == kindSearch {
		f.Searches.rows.Get(h).timer = 0
		f.Searches.failSearch(e, f, h, effects.Expired)
		return
	}
	r := f.gets.Get(h)
	if ref.Kind == timerReply {
		r.replyTimer = 0
		f.onReplyOverdue(e, h, r)
		return
	}
	r.timer = 0
	code := effects.Expired
	if r.phase == getRequesting && e.Now.Sub(r.sentAt) >= f.cfg.LookupTimeout/slowReplyPart {
		// The command's Timeout is shorter than the timeout of a request, so the reply timer would not trip the breaker.
		// Without a reason, after a trial, for any number of chunks.
		f.breakers.Trip(e.Now, r.peerAddr, code, "", true, 0)
	}
	r.setReason(code, timeoutReason(r))
	if g, cause := e.Links.Outbound(r.peer).Gate(); r.phase == getLinking && g != link.GateOpen && cause != effects.OK {
		code = cause // The state of the link says more than the expired deadline.
		r.setSharedReason(cause, e.Links.Outbound(r.peer).FailureReason())
	}
	f.failGet(e, h, r, code)
}

// slowReplyPart is the part of LookupTimeout after which a missing reply counts against the peer if a get expires before
// its request does. A third is long enough that a peer that replies at its usual speed is not taken for stopped.
const slowReplyPart = 3

func timeoutReason(r *getRow) effects.Why {
	w := effects.Why{Field: "Timeout", Ours: r.timeout.String(), Theirs: "no answer"}
	switch r.phase {
	case getLinking:
		w.Theirs = "not connected, or busy with what came before"
	case getReading:
		w.Theirs = "not all arrived"
	case getVerifying:
		w.Theirs = "arrived, and not yet compared with the checksums"
	case getRequesting, getSettling, getDoneQueued, getDoneSent, getLoanKept, getPhaseCount:
	}
	return w
}

// OnSignal handles a change of a peer's link or connection, or the end of the grant of a landing.
func (f *Requester) OnSignal(e *flow.Env, ref kernel.Ref, s flow.Signal) {
	//exhaustive:ignore
	switch s.Kind {
	case flow.PeerChanged:
		f.dropKeptLoans(e, ref.Subject)
		f.sendQueued(e, ref.Subject)
	case flow.LandingEnded:
		f.failGetOfGrant(e, e.Landings.At(ref.Subject.Slot()).ID, s.Code)
	default:
		kernel.PanicUnexpected("the p2p requester")
	}
}

// AbortCommand ends a get or a search early. It returns false if the outcome was delivered already.
func (f *Requester) AbortCommand(e *flow.Env, ref kernel.Ref) bool {
	if ref.Kind == kindSearch {
		f.Searches.failSearch(e, f, ref.Subject, effects.Cancelled)
		return true
	}
	r := f.gets.Get(ref.Subject)
	if r.delivered {
		return false
	}
	f.failGet(e, ref.Subject, r, effects.Cancelled)
	return true
}

// failGet delivers the outcome of a get that is linking, requesting, reading or verifying; in later phases it panics.
// Requests and transfers in flight continue to their own ends.
func (f *Requester) failGet(e *flow.Env, h table.Handle, r *getRow, code effects.Code) {
	switch r.phase {
	case getLinking:
		f.gets.Unlink(&f.queueOf(r).requests, h)
		f.deliverOutcome(e, r, code)
		f.removeGet(e, h, r)
	case getRequesting:
		// A late reply may name a loan, which is then given back.
		e.Out.Mark(Marks.Stopped)
		f.deliverBeforeReply(e, h, r, code)
	case getReading:
		// The pages may be stored into until the transfer has settled.
		e.Out.Mark(Marks.Stopped)
		r.transfer.Cancel(&e.Env)
		f.deliverOutcome(e, r, code)
	case getVerifying:
		// The driver reads the pages until the comparison has ended.
		e.Out.Mark(Marks.Stopped)
		f.deliverOutcome(e, r, code)
	case getSettling, getDoneQueued, getDoneSent, getLoanKept, getPhaseCount:
		panic("BUG: a get has its outcome before it is finished with")
	}
}
