package pull

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/flow"
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// With offload a put's chunks are copied to a host pool, and offered from there. The engine has its own pages
// back as soon as that is done, however long the offer stands, and whether or not its reader is there.
//
// A put gets host pages for all of its chunks or for none, first in, first out over all puts, below the
// high-water mark. They count until they are free again: the put refers to them until its outcome, and
// copies and leases keep them beyond that.

// admitCopies gives host pages to puts that wait for them, in order: as many as this step has work for.
func (f *Source) admitCopies(e *flow.Env) {
	for h := f.short.Front(); h != 0; h = f.short.Front() {
		p := f.puts.Get(h)
		if e.Pool.Taken()+uint32(len(p.Pages)) > f.cfg.HighWater {
			return
		}
		if !e.Work.Left() {
			e.Out.Mark(MarkCopiesCut)
			return
		}
		e.Work.Spend(p.Size())
		f.puts.Unlink(&f.short, h)
		p.phase = sourceCopying
		f.moves = p.copies.Begin(&e.Env, p.Pages, int(f.cfg.CopiesMax), sourceRef(sourceCopy, h), f.moves)
	}
}

// onCopyDone handles the end of a copy. One that failed ends the put: what the device could not
// read once it is not asked for again.
func (f *Source) onCopyDone(e *flow.Env, ref kernel.Ref, ev *effects.CopyDone) {
	p := f.puts.Get(ref.Subject)
	switch {
	case ev.Settled:
		p.copies.Settled(&e.Env, p.Pages, int(ref.Attempt))
	case ev.Code == effects.OK:
		panic("BUG: a copy ended well, but may go on")
	default:
		e.Out.Mark(MarkCopyUnsettled)
	}
	if ev.Code != effects.OK && !p.Delivered() {
		e.Out.Mark(MarkCopyFailed)
		p.Blame(ev.Code, effects.Why{Stage: effects.StageCopy, Field: "copy to host memory", Ours: ev.Code.String()})
		p.copies.Cancel(&e.Env) // The others go on to their end.
		p.deliver(e, ev.Code)
	}
	f.copied(e, ref.Subject, p)
}

// copied goes on with a put when all of its copies are settled: its engine's memory goes back, and unless
// it has its outcome it waits for its turn to be offered.
func (f *Source) copied(e *flow.Env, h table.Handle, p *outgoing) {
	switch {
	case p.copies.Touch():
	case !p.Delivered():
		p.Return(e)
		f.becomeWaiting(e, h, p)
	case p.Held():
		e.Out.Mark(MarkCopiedLate)
		p.Return(e)
		f.end(e, h, p)
	default:
		f.end(e, h, p)
	}
}
