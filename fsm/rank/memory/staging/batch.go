package staging

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// halfState is the progress of a half.
type halfState uint8

const (
	empty halfState = iota
	reading
	full // all items of the batch were read
	scattering
)

// A half is one of the two places of a fetch for a batch. Batch k is in half k mod 2 from the submission of its reads
// until its scatter has ended. Invariant: reads are submitted only into an empty half (S15).
type half struct {
	state halfState
	first uint32
	pages []effects.Page // the pages of the items, in order: local pages and staging pages
	reads uint32         // number of reads that have not settled
}

// advanceFetch makes progress with a fetch. advanceFetch submits the next reads before the scatter that runs in
// parallel, so that neither waits for the other, but only into an empty half (S15).
func (p *Pipeline) advanceFetch(v *env.Env, rights Rights, h table.Handle, f *fetch) {
	for p.loadBatch(v, rights, h, f) {
	}
	if f.delivered {
		return
	}
	if b := &f.halves[f.scatteredBatches&1]; f.scatteredBatches < f.loadedBatches && b.state == full {
		b.state = scattering
		v.Out.Scatter(effects.Scatter{
			Corr:   v.Corrs.Open(kernel.Ref{Owner: kernel.OwnerPipeline, Kind: kindScatter, Subject: h}),
			Ticket: f.ticket, First: b.first, Pages: b.pages,
		})
	}
}

// loadBatch begins the fetch's next batch if there is an empty half, and reports whether it did. Only one batch is read
// at a time, because two would share the bandwidth, and the first scatter would begin later. If the lease or the link
// of a source is gone, loadBatch fails the fetch.
func (p *Pipeline) loadBatch(v *env.Env, rights Rights, h table.Handle, f *fetch) bool {
	b := &f.halves[f.loadedBatches&1]
	if f.delivered || b.state != empty || f.halves[(f.loadedBatches+1)&1].state == reading {
		return false
	}
	n := p.nextBatchSize(f)
	if n == 0 {
		return false
	}
	batch := f.items[f.next : f.next+n]
	for i := range batch {
		it := &batch[i]
		if it.isLocal() {
			continue
		}
		switch s := &f.sources[it.Source]; {
		case v.Now > rights.ReadDeadline(s.ID):
			v.Out.Mark(Marks.LeaseOver)
			p.failFetch(v, h, f, effects.Expired, s.failureReason("kvf_lease_ns", "over before it was read"))
			return false
		case slices.Contains(p.lostLinks, s.Link) || !v.HasLink(s.Link):
			// The link is gone. The sweep may not have reached this fetch yet.
			p.failFetch(v, h, f, effects.PeerLost, s.failureReason("data plane", "gone"))
			return false
		}
	}
	*b = half{state: full, first: f.next, pages: b.pages[:0]}
	f.next += n
	f.loadedBatches++
	for i := range batch {
		it := &batch[i]
		page := it.Local
		if !it.isLocal() {
			last := len(f.idlePages) - 1
			page = f.idlePages[last]
			page.Length = it.Length
			f.idlePages = f.idlePages[:last]
			f.unreadItems--
			f.sources[it.Source].unreadItems--
		}
		b.pages = append(b.pages, page)
	}
	for i := range batch {
		if it := &batch[i]; !it.isLocal() && f.sources[it.Source].batch != f.loadedBatches {
			b.state = reading
			b.reads++
			p.submitRead(v, rights, h, f, it.Source, batch[i:], b.pages[i:])
		}
	}
	if b.reads > 1 {
		v.Out.Mark(Marks.SourcesMixed)
	}
	return true
}

// nextBatchSize returns the number of items in the next batch. Local items at the start are a batch of their own,
// because they wait for no read and need no staging page. Otherwise the batch has up to depth items of both kinds.
// nextBatchSize returns 0 if the first item is remote and no staging page is idle.
func (p *Pipeline) nextBatchSize(f *fetch) uint32 {
	remaining := f.items[f.next:]
	n := 0
	if len(remaining) > 0 && remaining[0].isLocal() {
		for n < len(remaining) && remaining[n].isLocal() {
			n++
		}
		return uint32(n)
	}
	for room := len(f.idlePages); n < len(remaining) && n < int(p.batchDepth(f)); n++ {
		if !remaining[n].isLocal() {
			if room == 0 {
				break
			}
			room--
		}
	}
	return uint32(n)
}

// submitRead submits one read for all items of a batch that are at the same source. A batch may have several sources;
// each source has its own peer, link and grant.
func (p *Pipeline) submitRead(
	v *env.Env, rights Rights, h table.Handle, f *fetch, from uint32, batch []Item, pages []effects.Page,
) {
	s := &f.sources[from]
	p.pairs = p.pairs[:0]
	for i := range batch {
		if it := &batch[i]; !it.isLocal() && it.Source == from {
			p.pairs = append(p.pairs, effects.Pair{Local: pages[i], Remote: it.Remote})
		}
	}
	s.batch, s.completed = f.loadedBatches, false
	f.readBefore = max(f.readBefore, from+1)
	s.read = v.Corrs.Open(kernel.Ref{Owner: kernel.OwnerPipeline, Kind: kindRead, Attempt: uint64(from), Subject: h})
	v.Out.Transfer(effects.Transfer{
		Corr: s.read, Link: s.Link, Peer: s.Peer, Grant: s.Grant, Read: true, Pairs: p.pairs,
		Since: s.Since, NotAfter: min(f.deadline, rights.ReadDeadline(s.ID)),
	})
}
