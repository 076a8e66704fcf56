package staging

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// state is the progress of a half.
type state uint8

const (
	empty state = iota
	reading
	full // all items of the batch were read
	scattering
)

// A half is one of the two places of a fetch for a batch. Batch k is in half k mod 2 from the submission of its reads
// until its scatter has ended. Invariant: reads are submitted only into an empty half (S15).
type half struct {
	state state
	first uint32
	pages []effects.Page // the pages of the items, in order: local pages and staging pages
	reads uint32         // number of reads that have not settled
}

// pump makes progress with a fetch. pump submits the next reads before the scatter that runs in parallel, so that
// neither waits for the other, but only into an empty half (S15).
func (p *Pipeline) pump(v *env.Env, of Rights, h table.Handle, f *fetch) {
	for p.load(v, of, h, f) {
	}
	if f.delivered {
		return
	}
	if b := &f.halves[f.scattered&1]; f.scattered < f.loaded && b.state == full {
		b.state = scattering
		v.Out.Scatter(effects.Scatter{
			Corr:   v.Corrs.Open(kernel.Ref{Owner: kernel.OwnerPipeline, Kind: kindScatter, Subject: h}),
			Ticket: f.ticket, First: b.first, Pages: b.pages,
		})
	}
}

// load begins the fetch's next batch if there is an empty half, and reports whether it did. Only one batch is read at a
// time, because two would share the bandwidth, and the first scatter would begin later. If the lease or the link of a
// source is gone, load fails the fetch.
func (p *Pipeline) load(v *env.Env, of Rights, h table.Handle, f *fetch) bool {
	b := &f.halves[f.loaded&1]
	if f.delivered || b.state != empty || f.halves[(f.loaded+1)&1].state == reading {
		return false
	}
	n := p.cut(f)
	if n == 0 {
		return false
	}
	batch := f.items[f.next : f.next+n]
	for i := range batch {
		it := &batch[i]
		if it.local() {
			continue
		}
		switch s := &f.sources[it.Source]; {
		case v.Now > of.NotAfter(s.ID):
			v.Out.Mark(Marks.LeaseOver)
			p.fail(v, h, f, effects.Expired, s.why("kvf_lease_ns", "over before it was read"))
			return false
		case slices.Contains(p.lost, s.Link) || !v.Leads(s.Link):
			// The link is gone. The sweep may not have reached this fetch yet.
			p.fail(v, h, f, effects.PeerLost, s.why("data plane", "gone"))
			return false
		}
	}
	*b = half{state: full, first: f.next, pages: b.pages[:0]}
	f.next += n
	f.loaded++
	for i := range batch {
		it := &batch[i]
		page := it.Local
		if !it.local() {
			last := len(f.idle) - 1
			page = f.idle[last]
			page.Length = it.Length
			f.idle = f.idle[:last]
			f.unread--
			f.sources[it.Source].unread--
		}
		b.pages = append(b.pages, page)
	}
	for i := range batch {
		if it := &batch[i]; !it.local() && f.sources[it.Source].batch != f.loaded {
			b.state = reading
			b.reads++
			p.read(v, of, h, f, it.Source, batch[i:], b.pages[i:])
		}
	}
	if b.reads > 1 {
		v.Out.Mark(Marks.SourcesMixed)
	}
	return true
}

// cut returns the number of items in the next batch. Local items at the start are a batch of their own, because they
// wait for no read and need no staging page. Otherwise the batch has up to depth items of both kinds. cut returns 0 if
// the first item is remote and no staging page is idle.
func (p *Pipeline) cut(f *fetch) uint32 {
	rest := f.items[f.next:]
	n := 0
	if len(rest) > 0 && rest[0].local() {
		for n < len(rest) && rest[n].local() {
			n++
		}
		return uint32(n)
	}
	for room := len(f.idle); n < len(rest) && n < int(p.depth(f)); n++ {
		if !rest[n].local() {
			if room == 0 {
				break
			}
			room--
		}
	}
	return uint32(n)
}

// read submits one read for all items of a batch that are at the same source. A batch may have several sources; each
// source has its own peer, link and grant.
func (p *Pipeline) read(
	v *env.Env, of Rights, h table.Handle, f *fetch, from uint32, batch []Item, pages []effects.Page,
) {
	s := &f.sources[from]
	p.pairs = p.pairs[:0]
	for i := range batch {
		if it := &batch[i]; !it.local() && it.Source == from {
			p.pairs = append(p.pairs, effects.Pair{Local: pages[i], Remote: it.Remote})
		}
	}
	s.batch, s.done = f.loaded, false
	f.begun = max(f.begun, from+1)
	s.read = v.Corrs.Open(kernel.Ref{Owner: kernel.OwnerPipeline, Kind: kindRead, Attempt: uint64(from), Subject: h})
	v.Out.Transfer(effects.Transfer{
		Corr: s.read, Link: s.Link, Peer: s.Peer, Grant: s.Grant, Read: true, Pairs: p.pairs,
		Since: s.Since, NotAfter: min(f.deadline, of.NotAfter(s.ID)),
	})
}
