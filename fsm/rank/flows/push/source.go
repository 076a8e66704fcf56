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

// A Source is the flow of puts that write into their receiver's memory: it asks for pages, moves the bytes in one
// batched write, and where nobody saw them land says that they count, or else gives the pages back.
type Source struct {
	seed    uint64
	puts    put.Table[outgoing, *outgoing]
	carried int // of them, those of other flows
	most    int // of those, at a time

	ask    protocol.AllocRequest  `snap:"scratch"`
	text   []byte                 `snap:"scratch"` // of keys of layers
	bytes  []byte                 `snap:"scratch"` // room for those that a request carries
	reply  protocol.AllocResponse `snap:"scratch"`
	pairs  []effects.Pair         `snap:"scratch"`
	layers []effects.Page         `snap:"scratch"` // of which pairs are put together
	byPage table.Index            // finds pairs by where they go, while they are made
}

// An outgoing put's outcome and its end are two things: its row stays until nothing touches its pages and its receiver
// was told what it has to know.
type outgoing struct {
	put.Row
	phase    sourcePhase
	aborting bool         // the grant is to be given back, not committed
	asked    effects.Time // of the attempt that was answered: its lease counts from then
	since    effects.Time `snap:"skip"` // when it asked first: a later attempt may be told the answer to that
	transfer transfer.Transfer
	carried  bool // what it asked last had the chunks with it
	chunks   bool // its receiver has pages for all layers of a chunk, and was asked for those
}

// sourcePhase is where a put stands.
type sourcePhase uint8

const (
	sourceWaiting    sourcePhase = iota // for the link, or for its turn on the alloc lane
	sourceAsking                        // AllocRequest sent
	sourceMoving                        // transfer in flight
	sourceSettling                      // transfer ended, but something may still touch the pages
	sourceCommitting                    // waits for the commit lane, to commit its grant or to give it back
	sourceConfirming                    // commit or abort sent
)

// Emptied has room for so many puts to so many peers, and for carried ones beside them, in the memory of f, which is
// not used any more. seed is a secret of this rank.
func (f *Source) Emptied(puts, carried, peers uint32, seed uint64) Source {
	return Source{
		seed: seed, puts: f.puts.Emptied(puts+carried, peers), most: int(carried),
		ask: f.ask, text: f.text, bytes: f.bytes, reply: f.reply, pairs: f.pairs, layers: f.layers,
		byPage: f.byPage.Emptied(),
	}
}

// What a Ref of this flow is for.
const (
	sourceAsk      uint8 = iota + 1 // an AllocRequest
	sourceTransfer                  // its bytes
	sourceCommit                    // a last word
	sourceDeadline                  // when it must have ended, or its last errand is given up; also its ticket
	sourceAnswer                    // when a peer's answer is overdue
)

func sourceRef(kind uint8, h table.Handle) kernel.Ref {
	return kernel.Ref{Owner: kernel.OwnerPushSource, Kind: kind, Subject: h}
}

// stage is how far a put is.
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

// lane is the one that a question of a put is on.
func (p *outgoing) lane() link.Lane {
	if p.phase == sourceAsking {
		return link.LaneAlloc
	}
	return link.LaneCommit
}

// Step takes a Put, or what became of what this flow asked for.
func (f *Source) Step(e *flow.Env, ref kernel.Ref, ev effects.Event) {
	switch ev := ev.(type) {
	case *effects.Command:
		f.take(e, ev.Ticket, ev.Body.(*engine.Put))
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

// take begins with a put.
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

// begin begins with a put that has its row.
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

// becomeWaiting puts it in line for the alloc lane; one that was asked before is the same operation, asked again.
func (f *Source) becomeWaiting(e *flow.Env, h table.Handle, p *outgoing) {
	p.phase, p.Conn = sourceWaiting, 0
	f.puts.Queue(e, h)
	f.pump(e, p.Peer)
}

// becomeCommitting queues it for the commit lane.
func (f *Source) becomeCommitting(e *flow.Env, h table.Handle, p *outgoing) {
	p.phase, p.Conn = sourceCommitting, 0
	f.puts.QueueLast(h, p.Delivered())
	if p.Delivered() {
		e.Timers.Set(&p.Timer, e.Now.Add(e.Cfg.ReplyTimeout), sourceRef(sourceDeadline, h))
	}
	f.pump(e, p.Peer)
}

// Signal is told that an outbound peer changed: who waits for it goes on.
func (f *Source) Signal(e *flow.Env, ref kernel.Ref, s flow.Signal) {
	if s.Kind != flow.Changed {
		kernel.Foreign("who pushes")
	}
	f.pump(e, ref.Subject)
}

// pump moves on the puts of one peer: what waits for the link, for the alloc lane, and for the commit lane.
//
// Those that are to be stopped, or asked, are as many a step as it has work for. The others stand first in line
// meanwhile, and whoever comes here looks at those first: none that is to be stopped is asked.
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
			// Its time ends in this step, and the question would not wait for room: that there is none at that instant is no
			// reason to leave the receiver alone.
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

// stopLeftAlone ends what waits for a peer that is left alone. Nothing of these puts is out, so their memory goes with
// the outcome. It says whether all have ended.
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

// onDeadline ends a put whose time is up.
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

// Abort ends a put early, and says whether there was anything to end.
func (f *Source) Abort(e *flow.Env, ref kernel.Ref) bool {
	h := ref.Subject
	p := f.puts.Get(h)
	if p.Delivered() {
		return false
	}
	f.stop(e, h, p, effects.Cancelled)
	return true
}

// stop gives a put its outcome now, wherever it stands; what is under way goes on to its own end without it.
func (f *Source) stop(e *flow.Env, h table.Handle, p *outgoing, code effects.Code) {
	switch p.phase {
	case sourceWaiting:
		f.puts.Unqueue(h)
		p.deliver(e, code)
		f.end(e, h, p)
	case sourceAsking: // The answer may bring a grant, which then is given back.
		e.Out.Mark(Marks.StoppedAsking)
		p.deliver(e, code)
	case sourceMoving: // Its pages are read until the transfer has settled.
		e.Out.Mark(Marks.StoppedMoving)
		p.transfer.Cancel(&e.Env)
		p.aborting = true
		p.deliverHeld(e, code)
	case sourceSettling:
		panic("BUG: a settling put has its outcome already")
	case sourceCommitting, sourceConfirming:
		e.Out.Mark(put.Marks.StoppedCommitting)
		if p.Delivered() { // Its last errand took too long: the end of the lease does the same.
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

// deliver gives a put its one outcome, and its memory with it: nothing reads its pages.
func (p *outgoing) deliver(e *flow.Env, code effects.Code) {
	p.Outcome(e, code, false, p.stage())
}

// deliverHeld gives it while its transfer may still read the pages.
func (p *outgoing) deliverHeld(e *flow.Env, code effects.Code) {
	p.Outcome(e, code, true, p.stage())
}

// end removes a put that has its outcome and nothing under way.
func (f *Source) end(e *flow.Env, h table.Handle, p *outgoing) {
	if p.For.Owner != kernel.OwnerNone {
		f.carried--
	}
	p.LetGo(e)
	f.puts.Remove(h)
}

// Carry takes a put of another flow.
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

// Room says whether one more can be carried.
func (f *Source) Room() bool { return f.carried < f.most }

// Stop ends one early that was carried.
func (f *Source) Stop(e *flow.Env, h table.Handle) {
	if p := f.puts.Get(h); p != nil && !p.Delivered() {
		f.stop(e, h, p, effects.Cancelled)
	}
}

// Left counts what a drain waits for.
func (f *Source) Left(e *flow.Env) int { return f.puts.Left(e) }

// Len is the number of puts.
func (f *Source) Len() int { return f.puts.Len() }
