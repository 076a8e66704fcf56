package staging

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
)

// ReportKind says what a Report tells.
type ReportKind uint8

// Kinds of reports.
const (
	// SourceReleased: no read of the source is under way, nor will this fetch start one. Said
	// once for each source, after the fetch's last read of it, or after its failure once
	// those under way are settled.
	SourceReleased ReportKind = iota + 1
	// LocalReleased: the fetch does not touch the local page any more. Said once for each.
	LocalReleased
	// Ended: the fetch was given its outcome. Reports on what still is under way follow.
	Ended
)

// A Report tells the caller what came of something that it lent.
type Report struct {
	Kind    ReportKind
	Ticket  effects.Ticket
	Subject table.Handle // the caller's own name of the source or the local item; zero for Ended
	Code    effects.Code // Ended: the outcome
}

// reports are what the caller has not heard yet.
type reports struct {
	list  []Report
	taken int // that Next gave already
}

// Next gives the oldest report that was not taken. The caller takes all before the step ends.
func (p *reports) Next() (Report, bool) {
	if p.taken == len(p.list) {
		p.list, p.taken = p.list[:0], 0
		return Report{}, false
	}
	p.taken++
	return p.list[p.taken-1], true
}

func (p *reports) report(kind ReportKind, f *fetch, subject table.Handle, code effects.Code) {
	p.list = append(p.list, Report{Kind: kind, Ticket: f.ticket, Subject: subject, Code: code})
}

// releaseLocal reports on the local items from up to, not including, to.
func (p *reports) releaseLocal(f *fetch, from, to uint32) {
	for i := from; i < to; i++ {
		if it := &f.items[i]; it.local() {
			p.report(LocalReleased, f, it.Pin, effects.OK)
		}
	}
}

// releaseSources reports on the sources that the fetch is done with since it was last asked.
func (p *reports) releaseSources(f *fetch) {
	to := len(f.sources)
	if f.looked && !f.delivered {
		to = int(f.begun) // Of the others nothing was read yet.
	}
	f.looked = true
	for ; f.lent < to && f.sources[f.lent].released; f.lent++ {
	}
	for i := f.lent; i < to; i++ {
		if s := &f.sources[i]; !s.released && s.read == 0 && (s.unread == 0 || f.delivered) {
			s.released = true
			p.report(SourceReleased, f, s.ID, effects.OK)
		}
	}
}
