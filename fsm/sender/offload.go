package sender

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/link"
	"github.com/kvferry/kvferry/fsm/table"
)

// With offload a put's chunks are copied to a host pool, and offered from there. The engine has its own pages
// back as soon as that is done, however long the offer stands, and whether or not its reader is there.
//
// A put gets host pages for all of its chunks or for none, first in, first out over all puts, below the
// high-water mark. They count until they are free again: the put refers to them until its outcome, and
// copies and loans keep them beyond that.

// CopiesMax is the most copies of one put. So many may run side by side, each of a run of its chunks.
const CopiesMax = 4

// places are the pages that a put offers.
func (p *put) places() []effects.Page {
	if len(p.host) > 0 {
		return p.host
	}
	return p.pages
}

// becomeShort queues a put for host pages.
func (s *Sender) becomeShort(v *env.Env, h table.Handle, p *put) {
	p.phase = short
	s.puts.PushBack(&s.short, h)
	s.AdmitCopies(v)
	if p.phase == short {
		v.Out.Mark(MarkHostFull)
	}
}

// AdmitCopies gives host pages to puts that wait for them, in order.
func (s *Sender) AdmitCopies(v *env.Env) {
	for h := s.short.Front(); h != 0; h = s.short.Front() {
		p := s.puts.Get(h)
		if v.Pool.Taken()+uint32(len(p.pages)) > s.cfg.HighWater {
			return
		}
		s.puts.Unlink(&s.short, h)
		s.becomeCopying(v, h, p)
	}
}

func (s *Sender) becomeCopying(v *env.Env, h table.Handle, p *put) {
	p.phase = copying
	p.host = v.Pool.Take(uint32(len(p.pages)), p.host[:0])
	for i := range p.host {
		p.host[i].Length = p.pages[i].Length
		v.Engine.Hold(p.pages[i])
		v.Pool.Hold(p.host[i])
	}
	v.Out.Publish(p.host)
	for range min(len(p.pages), CopiesMax) {
		p.copies = append(p.copies, 0)
	}
	for part := range p.copies {
		corr := v.Corrs.Open(kernel.Ref{Owner: kernel.OwnerSender, Kind: kindCopy, Attempt: uint64(part), Subject: h})
		s.moves = s.moves[:0]
		for i, end := p.part(part); i < end; i++ {
			s.moves = append(s.moves, effects.CopyPair{From: p.pages[i], To: p.host[i]})
		}
		p.copies[part] = corr
		v.Out.Copy(effects.Copy{Corr: corr, Pairs: s.moves})
	}
}

// part is the run of chunks that one of the put's copies moves.
func (p *put) part(i int) (from, end int) {
	n, parts := len(p.host), len(p.copies)
	return n * i / parts, n * (i + 1) / parts
}

// copiesOut says whether any copy of the put is not settled.
func (p *put) copiesOut() bool {
	for _, c := range p.copies {
		if c != 0 {
			return true
		}
	}
	return false
}

// OnCopyDone handles the end of a copy. One that failed ends the put: what the device could not
// read once it is not asked for again.
func (s *Sender) OnCopyDone(v *env.Env, l *link.Links, ref kernel.Ref, ev *effects.CopyDone) {
	p := s.puts.Get(ref.Subject)
	switch {
	case ev.Settled:
		s.copySettled(v, p, int(ref.Attempt))
	case ev.Code == effects.OK:
		panic("BUG: a copy ended well, but may go on")
	default:
		v.Out.Mark(MarkCopyUnsettled)
	}
	if ev.Code != effects.OK && !p.delivered {
		v.Out.Mark(MarkCopyFailed)
		p.blame(ev.Code, effects.Why{Stage: effects.StageCopy, Field: "copy to host memory", Ours: ev.Code.String()})
		s.endCopying(v, ref.Subject, p, ev.Code)
	}
	s.copied(v, l, ref.Subject, p)
}

// onCopySettled handles the late word that a copy touches nothing any more.
func (s *Sender) onCopySettled(v *env.Env, l *link.Links, ref kernel.Ref) {
	p := s.puts.Get(ref.Subject)
	s.copySettled(v, p, int(ref.Attempt))
	s.copied(v, l, ref.Subject, p)
}

func (s *Sender) copySettled(v *env.Env, p *put, part int) {
	p.copies[part] = 0
	for i, end := p.part(part); i < end; i++ {
		v.Engine.Unhold(p.pages[i])
		v.Pool.Unhold(p.host[i])
	}
}

// endCopying gives the put its outcome before its chunks are copied. Copies under way go on to their end.
func (s *Sender) endCopying(v *env.Env, h table.Handle, p *put, code effects.Code) {
	for _, c := range p.copies {
		if c != 0 {
			v.Out.Cancel(c)
		}
	}
	s.deliverHeld(v, p, code, p.copiesOut())
}

// copied goes on with a put when all of its copies are settled: its engine's memory goes back, and unless
// it has its outcome it waits for its turn to be offered.
func (s *Sender) copied(v *env.Env, l *link.Links, h table.Handle, p *put) {
	switch {
	case p.copiesOut():
	case !p.delivered:
		p.returnPages(v)
		s.becomeQueued(v, l, h, p)
	case p.held:
		v.Out.Mark(MarkCopiedLate)
		p.returnPages(v)
		s.end(v, l, h, p)
	default:
		s.end(v, l, h, p)
	}
}

// becomeQueued lets a put wait for its turn on its peer's lane.
func (s *Sender) becomeQueued(v *env.Env, l *link.Links, h table.Handle, p *put) {
	p.phase = waiting
	s.puts.PushBack(&s.queues[p.peer.Slot()].alloc, h)
	s.queued(v, l, h, p)
}
