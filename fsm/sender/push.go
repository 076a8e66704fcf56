package sender

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/link"
	"github.com/kvferry/kvferry/fsm/move"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// A pushSource is the flow of puts that write into their receiver's memory: it asks for pages, moves the bytes in one
// batched write, and where nobody saw them land says that they count, or else gives the pages back.
type pushSource struct {
	seed   uint64
	puts   table.Slab[pushPut]
	queues queues

	ask    protocol.AllocRequest  `snap:"scratch"`
	reply  protocol.AllocResponse `snap:"scratch"`
	pairs  []effects.Pair         `snap:"scratch"`
	byPage table.Index            // finds pairs by where they go, while they are made
}

type pushPut struct {
	row
	phase    pushPhase
	aborting bool         // the grant is to be given back, not committed
	asked    effects.Time // of the attempt that was answered: its lease counts from then
	since    effects.Time `snap:"skip"` // when it asked first: a later attempt may be told the answer to that
	transfer move.Transfer
	grant    effects.GrantID
}

// pushPhase is where a put stands.
type pushPhase uint8

const (
	pushWaiting    pushPhase = iota // for the link, or for its turn on the alloc lane
	pushAsking                      // AllocRequest sent
	pushMoving                      // transfer in flight
	pushSettling                    // transfer ended, but something may still touch the pages
	pushCommitting                  // waits for the commit lane, to commit its grant or to give it back
	pushConfirming                  // commit or abort sent
)

func newPushSource(cfg *Config, seed uint64) pushSource {
	return pushSource{seed: seed, puts: table.NewSlab[pushPut](int(cfg.PutsMax)), queues: newQueues(cfg.PeersMax)}
}

// stage is how far a put is.
func (p *pushPut) stage() effects.Stage {
	switch p.phase {
	case pushMoving, pushSettling:
		return effects.StageTransfer
	case pushCommitting, pushConfirming:
		return effects.StageCommit
	case pushWaiting, pushAsking:
	}
	return effects.StageAsk
}

// lane is the one that a question of a put is on.
func (p *pushPut) lane() link.Lane {
	if p.phase == pushAsking {
		return link.LaneAlloc
	}
	return link.LaneCommit
}

// take begins with a put.
func (f *pushSource) take(e *step, c *Put, a *admitted) {
	h, p := f.puts.Add()
	*p = pushPut{row: p.row}
	p.begin(e, c, a, ticketRef(ticketPush, h))
	if a.code != effects.OK {
		p.Blame(a.code, a.why)
		f.deliver(e, p, a.code)
		f.end(e, h, p)
		return
	}
	e.Timers.Set(&p.Timer, p.Deadline, timerRef(timerPush, h))
	f.puts.PushBack(&f.queues.at(p.peer).first, h)
	f.queued(e, h, p)
}

// becomeWaiting puts it back to the front of its queue: the same operation, asked again.
func (f *pushSource) becomeWaiting(e *step, h table.Handle, p *pushPut) {
	p.phase, p.conn = pushWaiting, 0
	again(&f.puts, &f.queues.at(p.peer).first, h)
	f.queued(e, h, p)
}

func (f *pushSource) queued(e *step, h table.Handle, p *pushPut) {
	if p.backedOff(e) {
		f.stop(e, h, p, effects.BackedOff)
		return
	}
	f.pump(e, p.peer)
}

// becomeCommitting queues it for the commit lane.
func (f *pushSource) becomeCommitting(e *step, h table.Handle, p *pushPut) {
	p.phase, p.conn = pushCommitting, 0
	f.puts.PushBack(&f.queues.at(p.peer).last, h)
	if p.Delivered() {
		e.Timers.Set(&p.Timer, e.Now.Add(e.cfg.ReplyTimeout), timerRef(timerPush, h))
	}
	f.pump(e, p.peer)
}

// pump moves on the puts of one peer: what waits for the link, for the alloc lane, and for the commit lane.
func (f *pushSource) pump(e *step, peer table.Handle) {
	q := f.queues.at(peer)
	if g, cause := e.links.Outbound(peer).Gate(); g != link.GateOpen {
		for h := q.first.Front(); h != 0 && f.puts.Get(h).inVain(e, g); h = q.first.Front() {
			p := f.puts.Get(h)
			p.BlameAs(cause, e.links.Outbound(peer).Why())
			f.stop(e, h, p, cause)
		}
		return
	}
	for h := q.first.Front(); h != 0 && e.mayAsk(peer); h = q.first.Front() {
		conn := e.links.Take(&e.Env, peer, link.LaneAlloc)
		if conn == 0 {
			break
		}
		f.puts.Unlink(&q.first, h)
		f.becomeAsking(e, h, conn)
	}
	if h := q.last.Front(); h != 0 {
		if conn := e.links.Take(&e.Env, peer, link.LaneCommit); conn != 0 {
			f.puts.Unlink(&q.last, h)
			f.becomeConfirming(e, h, conn)
		}
	}
}

// backOff leaves a peer's address alone and ends the puts that wait behind the one that was refused.
func (f *pushSource) backOff(e *step, peer table.Handle, code effects.Code, said string) {
	w := e.links.Outbound(peer).Where()
	if !e.breakers.Open(e.Now, w, code, said, e.cfg.Window > 1) {
		return
	}
	e.Out.Mark(MarkBackedOff)
	q := f.queues.at(peer)
	for h := q.first.Front(); h != 0; h = q.first.Front() {
		p := f.puts.Get(h)
		p.Blame(effects.BackedOff, e.breakers.Why(w))
		f.stop(e, h, p, effects.BackedOff)
	}
}

// due handles a deadline of this flow.
func (f *pushSource) due(e *step, ref kernel.Ref) {
	h := ref.Subject
	p := f.puts.Get(h)
	if ref.Kind == timerPush {
		p.Timer = 0
		f.onDeadline(e, h, p)
		return
	}
	p.answer = 0
	p.overdue(e, p.lane(), ref)
}

// onDeadline ends a put whose time is up.
func (f *pushSource) onDeadline(e *step, h table.Handle, p *pushPut) {
	code, why := effects.Expired, p.outOfTime()
	switch p.phase {
	case pushWaiting:
		why = p.outOfTimeWaiting(e)
	case pushMoving:
		why.Theirs = "not all arrived"
	case pushAsking, pushSettling, pushCommitting, pushConfirming:
	}
	p.Blame(code, why)
	if p.phase == pushWaiting {
		code = p.tooLate(e)
	}
	f.stop(e, h, p, code)
}

// abort ends a put early, and says whether there was anything to end.
func (f *pushSource) abort(e *step, h table.Handle) bool {
	p := f.puts.Get(h)
	if p.Delivered() {
		return false
	}
	f.stop(e, h, p, effects.Cancelled)
	return true
}

// stop gives a put its outcome now, wherever it stands; what is under way goes on to its own end without it.
func (f *pushSource) stop(e *step, h table.Handle, p *pushPut, code effects.Code) {
	switch p.phase {
	case pushWaiting:
		f.puts.Unlink(&f.queues.at(p.peer).first, h)
		f.deliver(e, p, code)
		f.end(e, h, p)
	case pushAsking: // The answer may bring a grant, which then is given back.
		e.Out.Mark(MarkStoppedAsking)
		f.deliver(e, p, code)
	case pushMoving: // Its pages are read until the transfer has settled.
		e.Out.Mark(MarkStoppedMoving)
		p.transfer.Cancel(&e.Env)
		p.aborting = true
		f.deliverHeld(e, p, code)
	case pushSettling:
		panic("BUG: a settling put has its outcome already")
	case pushCommitting, pushConfirming:
		e.Out.Mark(MarkStoppedCommitting)
		if p.Delivered() { // Its last errand took too long: the end of the lease does the same.
			if p.phase == pushCommitting {
				f.puts.Unlink(&f.queues.at(p.peer).last, h)
				f.end(e, h, p)
			}
			return
		}
		p.aborting = true
		f.deliver(e, p, code)
		e.Timers.Set(&p.Timer, e.Now.Add(e.cfg.ReplyTimeout), timerRef(timerPush, h))
	}
}

// deliver gives a put its one outcome, and its memory with it: nothing reads its pages.
func (f *pushSource) deliver(e *step, p *pushPut, code effects.Code) {
	p.outcome(e, code, false, p.stage())
}

// deliverHeld gives it while its transfer may still read the pages.
func (f *pushSource) deliverHeld(e *step, p *pushPut, code effects.Code) {
	p.outcome(e, code, true, p.stage())
}

// end removes a put that has its outcome and nothing under way.
func (f *pushSource) end(e *step, h table.Handle, p *pushPut) {
	p.letGo(e)
	f.puts.Remove(h)
}

// left counts what a drain waits for. A put that only has a word left for a peer out of reach is none of it: the
// peer's lease says the same, in time.
func (f *pushSource) left(l *link.Links) int {
	left := f.puts.Len()
	for slot := range f.puts.Slots() {
		h := f.puts.At(slot)
		if h == 0 {
			continue
		}
		if p := f.puts.Get(h); p.Delivered() && p.phase == pushCommitting && !p.Held() {
			if state, _ := l.Outbound(p.peer).State(); state != link.Ready {
				left--
			}
		}
	}
	return left
}
