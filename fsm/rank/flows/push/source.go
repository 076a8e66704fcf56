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
	seed    uint64
	puts    put.Table[outgoing, *outgoing]
	carried int // the number of puts that are carried for another flow
	most    int // the limit of carried

	ask    protocol.AllocRequest  `snap:"scratch"`
	text   []byte                 `snap:"scratch"` // the text of layer keys
	bytes  []byte                 `snap:"scratch"` // the buffer for chunks that travel in a request
	reply  protocol.AllocResponse `snap:"scratch"`
	pairs  []effects.Pair         `snap:"scratch"`
	layers []effects.Page         `snap:"scratch"` // the source pages that are gathered into the pairs
	byPage table.Index            // finds pairs by remote page while a plan is made
}

// An outgoing is the row of one put. The outcome of a put and the end of the row are separate events: the row
// stays until nothing touches the put's pages and the receiver has been told to commit the grant or to take the
// pages back.
type outgoing struct {
	put.Row
	phase    sourcePhase
	aborting bool // the grant is to be given back and not committed
	// asked is the time at which the attempt in flight, or the answered one, was sent. Invariant: no write is
	// submitted later than asked plus the lease, less LeaseGuard (M4).
	asked effects.Time
	// since is the time at which the first attempt was sent: the reply to a later attempt may repeat the reply to
	// the first.
	since    effects.Time `snap:"skip"`
	transfer transfer.Transfer
	carried  bool // the last request carried the chunks themselves
	chunks   bool // the receiver's pages hold all layers of a chunk, so the request names chunks
}

// sourcePhase is the phase of a put.
type sourcePhase uint8

const (
	sourceWaiting    sourcePhase = iota // waits for the link, or for a place on the alloc lane
	sourceAsking                        // the AllocRequest was sent
	sourceMoving                        // the transfer is in flight
	sourceSettling                      // the transfer has ended, but something may still touch the pages
	sourceCommitting                    // waits for the commit lane, to commit or to give back the grant
	sourceConfirming                    // the commit or the abort was sent
)

// Emptied returns a Source without puts. There is room for the given number of puts to the given number of peers,
// and for the given number of carried puts. The memory of f is reused, so f must not be used afterwards. seed is
// a secret of this rank.
func (f *Source) Emptied(puts, carried, peers uint32, seed uint64) Source {
	return Source{
		seed: seed, puts: f.puts.Emptied(puts+carried, peers), most: int(carried),
		ask: f.ask, text: f.text, bytes: f.bytes, reply: f.reply, pairs: f.pairs, layers: f.layers,
		byPage: f.byPage.Emptied(),
	}
}

// The kinds of Refs of this flow.
const (
	sourceAsk      uint8 = iota + 1 // the reply to an AllocRequest
	sourceTransfer                  // the transfer
	sourceCommit                    // the reply to a commit or an abort
	sourceDeadline                  // the deadline of the put, or of its last commit or abort; also the put's ticket
	sourceAnswer                    // the time at which the peer's reply is overdue
)

func sourceRef(kind uint8, h table.Handle) kernel.Ref {
	return kernel.Ref{Owner: kernel.OwnerPushSource, Kind: kind, Subject: h}
}

// stage returns the stage that reports name for the put's phase.
func (p *outgoing) stage() effects.Stage {
	switch p.phase {
	case sourceMoving, sourceSettling:
		return effects.StageTransfer
	case sourceCommitting, sourceConfirming:
		return effects.StageCommit
	case sourceWaiting, sourceAsking:
	}
	return effects.StageAsk
}

// lane returns the lane on which the put's present request was sent.
func (p *outgoing) lane() link.Lane {
	if p.phase == sourceAsking {
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
		kernel.Foreign("who pushes")
	}
}

// take admits a Put command and inserts the row, unless put.Admit refuses the command.
func (f *Source) take(e *flow.Env, t effects.Ticket, c *engine.Put) {
	a, ok := put.Admit(e, t, c, f.puts.Len()-f.carried, put.Fitting(e.Cfg, f.Fits(e.Cfg, c.Keys)))
	if !ok {
		return
	}
	h, p := f.puts.Add()
	*p = outgoing{Row: p.Row}
	p.Begin(e, c, &a, sourceRef(sourceDeadline, h))
	f.begin(e, h, p, &a)
}

// begin starts a put that has a row: begin ends the put at once if the admission failed, and queues it otherwise.
func (f *Source) begin(e *flow.Env, h table.Handle, p *outgoing, a *put.Admitted) {
	if a.Code != effects.OK {
		p.NoRoom = true
		p.Blame(a.Code, a.Why)
		p.deliver(e, a.Code)
		f.end(e, h, p)
		return
	}
	e.Timers.Set(&p.Timer, p.Deadline, sourceRef(sourceDeadline, h))
	f.becomeWaiting(e, h, p)
}

// becomeWaiting queues the put for the alloc lane. A put that was requested before keeps the operation id: the
// next request is a retry.
func (f *Source) becomeWaiting(e *flow.Env, h table.Handle, p *outgoing) {
	p.phase, p.Conn = sourceWaiting, 0
	f.puts.Queue(e, h)
	f.pump(e, p.Peer)
}

// becomeCommitting queues the put for the commit lane. A put that has an outcome already gets a new deadline for
// this last message.
func (f *Source) becomeCommitting(e *flow.Env, h table.Handle, p *outgoing) {
	p.phase, p.Conn = sourceCommitting, 0
	f.puts.QueueLast(h, p.Delivered())
	if p.Delivered() {
		e.Timers.Set(&p.Timer, e.Now.Add(e.Cfg.ReplyTimeout), sourceRef(sourceDeadline, h))
	}
	f.pump(e, p.Peer)
}

// Command takes a Put, and returns false for any other command.
func (f *Source) Command(e *flow.Env, x *effects.Command) bool {
	c, ok := x.Body.(*engine.Put)
	if ok {
		f.take(e, x.Ticket, c)
	}
	return ok
}

// Signal handles a change of an outbound peer: the puts that wait for the peer are looked at again.
func (f *Source) Signal(e *flow.Env, ref kernel.Ref, s flow.Signal) {
	if s.Kind != flow.Changed {
		kernel.Foreign("who pushes")
	}
	f.pump(e, ref.Subject)
}

// pump advances the puts of one peer that wait for the link, for the alloc lane or for the commit lane.
//
// One step stops or sends only as many puts as it has work for. The remaining puts stay first in the queue, and
// the next call looks at these first, so no put that is to be stopped is sent.
func (f *Source) pump(e *flow.Env, peer table.Handle) {
	if !f.stopLeftAlone(e, peer) {
		return
	}
	if g, _ := e.Links.Outbound(peer).Gate(); g != link.GateOpen {
		for h, cause := f.puts.InVain(e, peer); h != 0 && f.puts.MayStop(e, h); h, cause = f.puts.InVain(e, peer) {
			f.stop(e, h, f.puts.Get(h), cause)
		}
		return
	}
	for h := f.puts.First(peer); h != 0 && put.MayAsk(e, peer); h = f.puts.First(peer) {
		if !f.puts.MaySend(e, h) {
			return
		}
		if p := f.puts.Get(h); p.Deadline <= e.Now {
			// The put's time ends in this step, and a request would not wait for pages. A refusal for lack of
			// pages at this instant would be no reason to open the breaker of the receiver.
			f.onDeadline(e, h, p)
			continue
		}
		conn := e.Links.Take(&e.Env, peer, link.LaneAlloc)
		if conn == 0 {
			break
		}
		f.puts.Unqueue(h)
		e.Work.Spend(len(f.puts.Get(h).Pages))
		f.becomeAsking(e, h, conn)
	}
	if h, conn := f.puts.TakeLast(e, peer); h != 0 {
		f.becomeConfirming(e, h, conn)
	}
}

// stopLeftAlone ends the waiting puts of a peer for which the breaker of the peer is open (a smaller put may
// still be sent). Nothing of these puts has been sent, so their memory is returned with the outcome.
// stopLeftAlone returns false if some puts are left for the next step.
func (f *Source) stopLeftAlone(e *flow.Env, peer table.Handle) bool {
	for h := f.puts.LeftAlone(e, peer); h != 0; h = f.puts.LeftAlone(e, peer) {
		if !f.puts.MayStop(e, h) {
			return false
		}
		f.stop(e, h, f.puts.Get(h), effects.BackedOff)
	}
	return true
}

// Due handles a deadline of this flow.
func (f *Source) Due(e *flow.Env, ref kernel.Ref) {
	h := ref.Subject
	p := f.puts.Get(h)
	if ref.Kind == sourceDeadline {
		p.Timer = 0
		f.onDeadline(e, h, p)
		return
	}
	p.Overdue(e, p.lane(), ref)
}

// onDeadline ends a put when the deadline has passed.
func (f *Source) onDeadline(e *flow.Env, h table.Handle, p *outgoing) {
	code, why := effects.Expired, p.OutOfTime()
	switch p.phase {
	case sourceWaiting:
		why = p.OutOfTimeWaiting(e)
	case sourceMoving:
		why.Theirs = "not all arrived"
	case sourceAsking, sourceSettling, sourceCommitting, sourceConfirming:
	}
	p.Blame(code, why)
	if p.phase == sourceWaiting {
		code = p.TooLate(e)
	}
	f.stop(e, h, p, code)
}

// Abort ends a put early, and returns false if the put has an outcome already.
func (f *Source) Abort(e *flow.Env, ref kernel.Ref) bool {
	h := ref.Subject
	p := f.puts.Get(h)
	if p.Delivered() {
		return false
	}
	f.stop(e, h, p, effects.Cancelled)
	return true
}

// stop gives a put its outcome now, in any phase. Work that is in flight continues to the end.
func (f *Source) stop(e *flow.Env, h table.Handle, p *outgoing, code effects.Code) {
	switch p.phase {
	case sourceWaiting:
		f.puts.Unqueue(h)
		p.deliver(e, code)
		f.end(e, h, p)
	case sourceAsking: // The reply may bring a grant, which is then given back.
		e.Out.Mark(Marks.StoppedAsking)
		p.deliver(e, code)
	case sourceMoving: // The pages are read until the transfer has settled (M8).
		e.Out.Mark(Marks.StoppedMoving)
		p.transfer.Cancel(&e.Env)
		p.aborting = true
		p.deliverHeld(e, code)
	case sourceSettling:
		panic("BUG: a settling put has its outcome already")
	case sourceCommitting, sourceConfirming:
		e.Out.Mark(put.Marks.StoppedCommitting)
		if p.Delivered() { // The commit or abort took too long: the end of the lease has the same effect.
			if p.phase == sourceCommitting {
				f.puts.UnqueueLast(h)
				f.end(e, h, p)
			}
			return
		}
		p.aborting = true
		p.deliver(e, code)
		if p.phase == sourceCommitting {
			f.puts.Over(h, true)
		}
		e.Timers.Set(&p.Timer, e.Now.Add(e.Cfg.ReplyTimeout), sourceRef(sourceDeadline, h))
	}
}

// deliver delivers the put's one outcome together with the memory. Nothing may read the pages any more.
func (p *outgoing) deliver(e *flow.Env, code effects.Code) {
	p.Outcome(e, code, false, p.stage())
}

// deliverHeld delivers the outcome as held, because the transfer may still read the pages (M8).
func (p *outgoing) deliverHeld(e *flow.Env, code effects.Code) {
	p.Outcome(e, code, true, p.stage())
}

// end removes the row of a put that has an outcome and nothing in flight.
func (f *Source) end(e *flow.Env, h table.Handle, p *outgoing) {
	if p.For.Owner != kernel.OwnerNone {
		f.carried--
	}
	p.LetGo(e)
	f.puts.Remove(h)
}

// Carry starts a put for another flow and returns the handle. Room must have reported true.
func (f *Source) Carry(e *flow.Env, c *flow.Carried) table.Handle {
	a := put.Carry(e, c)
	h, p := f.puts.Add()
	f.carried++
	*p = outgoing{Row: p.Row}
	p.Begin(e, &c.Put, &a, sourceRef(sourceDeadline, h))
	p.For, p.Layers, p.Whole, p.Epoch, p.Opened = c.For, c.Layers, c.Whole, c.Epoch, c.Opened
	f.begin(e, h, p, &a)
	return h
}

// Room reports whether one more put can be carried for another flow.
func (f *Source) Room() bool { return f.carried < f.most }

// Stop cancels a carried put, unless the put has ended or has an outcome.
func (f *Source) Stop(e *flow.Env, h table.Handle) {
	if p := f.puts.Get(h); p != nil && !p.Delivered() {
		f.stop(e, h, p, effects.Cancelled)
	}
}

// Left returns the number of puts that a drain waits for.
func (f *Source) Left(e *flow.Env) int { return f.puts.Left(e) }

// Len returns the number of puts.
func (f *Source) Len() int { return f.puts.Len() }
