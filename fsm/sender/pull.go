package sender

import (
	"encoding/binary"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/draw"
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/lease"
	"github.com/kvferry/kvferry/fsm/link"
	"github.com/kvferry/kvferry/fsm/move"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// A pullSource is the flow of puts that their receiver reads: it leases the pages, or copies of them, says where
// they are, and waits for the reader's word, or the end of the time that it has.
//
// The answer to an offer gives the put its outcome, the end of the lease its memory; they come in either order. An
// answer that never comes ends the put in time. Its pages stay leased for as long as they may be read.
type pullSource struct {
	puts    table.Slab[pullPut]
	byPull  table.Index
	ids     draw.Source
	queues  queues     // the line is of those whose pages do not fit below the high-water mark
	short   table.List // puts that wait for host pages, oldest first
	shifted bool       // somebody left a line without what he waited for

	offer protocol.PullReadyNotif   `snap:"scratch"`
	ack   protocol.PullReadyDoneAck `snap:"scratch"`
	done  protocol.PullDoneSignal   `snap:"scratch"`
	moves []effects.CopyPair
}

type pullPut struct {
	row
	phase     pullPhase
	id        protocol.PullID // by which its reader speaks of it
	copies    move.Copies     // with offload: of its pages, in host memory
	lease     lease.Owner     // of its pages, or of the copies
	read      bool            // its reader said that it has everything
	withdrawn bool            // it was taken back, and the peer is to be told
}

// pullPhase is where a put stands.
type pullPhase uint8

const (
	pullWaiting     pullPhase = iota // for the link, or for its turn on the alloc lane, or for room to lend
	pullShort                        // for host pages, to be copied to
	pullCopying                      // chunks on their way there
	pullOffering                     // PullReadyNotif sent
	pullOffered                      // acknowledged, or not to be any more; its pages are leased
	pullWithdrawing                  // waits for the commit lane, to withdraw its offer, or has sent that
)

func newPullSource(cfg *Config, seed uint64) pullSource {
	return pullSource{
		puts: table.NewSlab[pullPut](int(cfg.PutsMax)), ids: draw.New(seed), queues: newQueues(cfg.PeersMax),
	}
}

// stage is how far a put is.
func (p *pullPut) stage() effects.Stage {
	switch p.phase {
	case pullShort:
		return effects.StageMemory
	case pullCopying:
		return effects.StageCopy
	case pullWithdrawing:
		return effects.StageCommit
	case pullWaiting, pullOffering, pullOffered:
	}
	return effects.StageOffer
}

// lane is the one that a question of a put is on.
func (p *pullPut) lane() link.Lane {
	if p.phase == pullOffering {
		return link.LaneAlloc
	}
	return link.LaneCommit
}

// places are the pages that a put offers.
func (p *pullPut) places() []effects.Page {
	if pages := p.copies.Pages(); len(pages) > 0 {
		return pages
	}
	return p.Pages
}

// take begins with a put.
func (f *pullSource) take(e *step, c *Put, a *admitted) {
	h, p := f.puts.Add()
	*p = pullPut{row: p.row, copies: p.copies.Reuse()}
	p.begin(e, c, a, ticketRef(ticketPull, h))
	if a.code != effects.OK {
		p.Blame(a.code, a.why)
		f.deliver(e, p, a.code)
		f.end(e, h, p)
		return
	}
	p.id = newPullID(&f.ids)
	f.byPull.Add(pullHash(p.id), h)
	e.Timers.Set(&p.Timer, p.Deadline, timerRef(timerPull, h))
	if e.cfg.Offload {
		f.becomeShort(e, h, p)
		return
	}
	f.becomeQueued(e, h, p)
}

// newPullID is as protocol.NewPullID draws it, without the reader that escapes.
func newPullID(ids *draw.Source) (id protocol.PullID) {
	binary.LittleEndian.PutUint64(id[:8], ids.Next())
	binary.LittleEndian.PutUint64(id[8:], ids.Next())
	id[6], id[8] = id[6]&0x0F|0x40, id[8]&0x3F|0x80
	return id
}

func pullHash(id protocol.PullID) uint64 { return binary.LittleEndian.Uint64(id[:]) }

func (f *pullSource) find(id protocol.PullID) table.Handle {
	for q := f.byPull.Seek(pullHash(id)); q.Found(); q = f.byPull.Next(q) {
		if f.puts.Get(q.Handle()).id == id {
			return q.Handle()
		}
	}
	return 0
}

// due handles a deadline of this flow.
func (f *pullSource) due(e *step, ref kernel.Ref) {
	h := ref.Subject
	p := f.puts.Get(h)
	switch ref.Kind {
	case timerPull:
		p.Timer = 0
		f.onDeadline(e, h, p)
	case timerPullAnswer:
		p.answer = 0
		p.overdue(e, p.lane(), ref)
	case timerLease:
		f.onLeaseOver(e, h, p)
	}
}

// onDeadline ends a put whose time is up.
func (f *pullSource) onDeadline(e *step, h table.Handle, p *pullPut) {
	code, why := effects.Expired, p.outOfTime()
	switch p.phase {
	case pullWaiting:
		why = p.outOfTimeWaiting(e)
		if f.queues.at(p.peer).blocked {
			why.Stage, why.Theirs = effects.StageMemory, ""
			why.Ours += ", with " + number(e.Pool.Lent()) + " of " + number(e.cfg.HighWater) + " pages lent"
		}
	case pullShort:
		why.Theirs = ""
		why.Field = "pd_cpu_buffer_size"
		why.Ours = number(e.Pool.Taken()) + " of " + number(e.cfg.HighWater) + " pages in use for " + p.Patience.String()
		why.Remedy = "retry later, or enlarge pd_cpu_buffer_size"
	case pullCopying:
		why.Theirs = ""
	case pullOffering, pullOffered, pullWithdrawing:
	}
	p.Blame(code, why)
	if p.phase == pullWaiting {
		code = p.tooLate(e)
	}
	f.stop(e, h, p, code)
}

// abort ends a put early, or takes back its offer, and says whether there was anything to end.
func (f *pullSource) abort(e *step, h table.Handle) bool {
	p := f.puts.Get(h)
	if p.Delivered() && (p.phase != pullOffered || !p.lease.Stands()) {
		return false
	}
	f.stop(e, h, p, effects.Cancelled)
	return true
}

// stop gives a put its outcome now, wherever it stands; what is under way goes on to its own end without it.
func (f *pullSource) stop(e *step, h table.Handle, p *pullPut, code effects.Code) {
	switch p.phase {
	case pullShort:
		f.puts.Unlink(&f.short, h)
		f.shifted = true
		f.deliver(e, p, code)
		f.end(e, h, p)
	case pullCopying:
		e.Out.Mark(MarkStoppedCopying)
		p.copies.Cancel(&e.Env) // They go on to their end.
		f.deliver(e, p, code)
	case pullWaiting:
		f.unqueue(p, h)
		if p.lease.Out() {
			f.withdraw(e, h, p, code)
			return
		}
		f.deliver(e, p, code)
		f.end(e, h, p)
	case pullOffering, pullOffered:
		e.Out.Mark(MarkStoppedOffered)
		f.withdraw(e, h, p, code)
	case pullWithdrawing: // Its last errand took too long: the end of the lease does the same.
		e.Out.Mark(MarkStoppedCommitting)
		if p.conn == 0 {
			f.puts.Unlink(&f.queues.at(p.peer).last, h)
			f.finish(e, h, p)
		}
	}
}

// deliver gives a put its one outcome, and its memory with it unless that may still be read. Copies in host memory
// are the lease's alone from then on.
func (f *pullSource) deliver(e *step, p *pullPut, code effects.Code) {
	p.copies.Drop(&e.Env)
	p.outcome(e, code, p.lease.Out() || p.copies.Touch(), p.stage())
}

// end removes a put that has its outcome and nothing under way.
func (f *pullSource) end(e *step, h table.Handle, p *pullPut) {
	p.letGo(e)
	if p.id != (protocol.PullID{}) {
		f.byPull.Remove(pullHash(p.id), h)
	}
	p.copies.Shed()
	f.puts.Remove(h)
}

// left counts what a drain waits for. A put that has its memory back and only a word left for a peer out of reach is
// none of it: the peer's lease says the same, in time.
func (f *pullSource) left(l *link.Links) int {
	left := f.puts.Len()
	for slot := range f.puts.Slots() {
		h := f.puts.At(slot)
		if h == 0 {
			continue
		}
		p := f.puts.Get(h)
		if p.Delivered() && p.phase == pullWithdrawing && p.conn == 0 && !p.Held() && !p.lease.Out() {
			if state, _ := l.Outbound(p.peer).State(); state != link.Ready {
				left--
			}
		}
	}
	return left
}
