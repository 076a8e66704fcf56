package staging

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
)

// ReportKind is the kind of a Report.
type ReportKind uint8

// The kinds of reports.
const (
	// SourceReleased: no read of the source is in flight, and this fetch will not start another read of the source.
	// Reported once for each source: after the fetch's last read of the source, or, if the fetch failed, when the reads
	// in flight have settled.
	SourceReleased ReportKind = iota + 1
	// LocalReleased: the fetch does not touch the local page any more. Reported once for each local page.
	LocalReleased
	// Ended: the fetch has its outcome. Reports on what is still in flight follow.
	Ended
)

// A Report tells the caller what happened to something that the caller lent.
type Report struct {
	Kind    ReportKind
	Ticket  effects.Ticket
	Subject table.Handle // the caller's handle of the source or of the local item; zero for Ended
	Code    effects.Code // for Ended: the outcome
}

// reports is the queue of reports that the caller has not taken yet.
type reports struct {
	list []Report
	next int // number of reports that Next has returned
}

// Next returns the oldest report that was not taken. The caller takes all reports before the step ends.
func (p *reports) Next() (Report, bool) {
	if p.next == len(p.list) {
		p.list, p.next = p.list[:0], 0
		return Report{}, false
	}
	p.next++
	return p.list[p.next-1], true
}

// addReport appends a report.
func (p *reports) addReport(kind ReportKind, f *fetch, subject table.Handle, code effects.Code) {
	p.list = append(p.list, Report{Kind: kind, Ticket: f.ticket, Subject: subject, Code: code})
}

// releaseLocal reports the release of the local items with indexes from (inclusive) to to (exclusive).
func (p *reports) releaseLocal(f *fetch, from, to uint32) {
	for i := from; i < to; i++ {
		if it := &f.items[i]; it.isLocal() {
			p.addReport(LocalReleased, f, it.Pin, effects.OK)
		}
	}
}

// releaseSources reports the release of the sources that the fetch has finished with since the last call.
func (p *reports) releaseSources(f *fetch) {
	to := len(f.sources)
	if f.unneededReleased && !f.delivered {
		to = int(f.readBefore) // no source from this index on was read yet
	}
	f.unneededReleased = true
	for ; f.releasedBefore < to && f.sources[f.releasedBefore].released; f.releasedBefore++ {
	}
	for i := f.releasedBefore; i < to; i++ {
		if s := &f.sources[i]; !s.released && s.read == 0 && (s.unreadItems == 0 || f.delivered) {
			s.released = true
			p.addReport(SourceReleased, f, s.ID, effects.OK)
		}
	}
}
