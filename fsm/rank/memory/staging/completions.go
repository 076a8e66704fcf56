package staging

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
)

// OnTransferDone handles the end of a read. A read that ended after the right to read counts as failed, whatever the
// device reports (rule M4).
func (p *Pipeline) OnTransferDone(v *env.Env, rights Rights, ref kernel.Ref, ev *effects.TransferDone) {
	f := p.fetches.Get(ref.Subject)
	s := &f.sources[ref.Attempt]
	code := ev.Code
	switch {
	case code != effects.OK:
		v.Out.Mark(Marks.ReadFailed)
	case ev.At > rights.ReadDeadline(s.ID):
		v.Out.Mark(Marks.ReadLate)
		code = effects.Expired
	}
	if ev.Settled {
		p.settleRead(f, s)
	} else {
		if code == effects.OK {
			panic("BUG: a read ended well, but may go on")
		}
		v.Out.Mark(Marks.ReadUnsettled)
		s.completed = true
	}
	if code != effects.OK {
		p.failFetch(v, ref.Subject, f, code, s.failureReason("read", code.String()))
	}
	p.advanceFetch(v, rights, ref.Subject, f)
	p.releaseUnused(v, ref.Subject, f)
}

// OnSettled handles the later report that a read touches nothing any more.
func (p *Pipeline) OnSettled(v *env.Env, ref kernel.Ref) {
	f := p.fetches.Get(ref.Subject)
	p.settleRead(f, &f.sources[ref.Attempt])
	p.releaseUnused(v, ref.Subject, f)
}

// settleRead records that a read touches nothing any more. With the last read of a batch the half is full, or, after
// the delivery, empty.
func (p *Pipeline) settleRead(f *fetch, s *source) {
	s.read = 0
	b := &f.halves[(s.batch-1)&1]
	if b.reads--; b.reads > 0 {
		return
	}
	b.state = full
	if f.delivered {
		p.emptyHalf(f, b)
	}
}

// OnScattered handles the end of a scatter: its half is empty again.
func (p *Pipeline) OnScattered(v *env.Env, rights Rights, ref kernel.Ref, ev *effects.Scattered) {
	h := ref.Subject
	f := p.fetches.Get(h)
	p.emptyHalf(f, &f.halves[f.scatteredBatches&1])
	f.scatteredBatches++
	if f.returnDue {
		v.Out.Mark(Marks.ScatteredLate)
		f.returnDue = false
		v.Out.Return(f.ticket)
	}
	switch {
	case f.delivered:
	case ev.Code != effects.OK:
		v.Out.Mark(Marks.ScatterFailed)
		p.failFetch(v, h, f, ev.Code, effects.Why{
			Stage: effects.StageScatter, Field: "result of Scatter", Ours: ev.Code.String(),
			Remedy: "compute the rest; the result of Scatter names the cause",
		})
	case f.scatteredBatches == f.loadedBatches && int(f.next) == len(f.items):
		p.deliverOutcome(v, h, f, effects.OK, nil)
	default:
		p.advanceFetch(v, rights, h, f)
	}
	p.releaseUnused(v, h, f)
}

// SourceOf returns the source of a read. A read that ended as PeerLost or Stale has shown that the link of the source
// is of no use.
func (p *Pipeline) SourceOf(ref kernel.Ref) Source {
	return p.fetches.Get(ref.Subject).sources[ref.Attempt].Source
}
