package staging

import (
	"strconv"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// A Fetch is a fetch command of the engine. Items are in the order in which the engine wants the chunks. The slices are
// borrowed for the call.
type Fetch struct {
	Ticket   effects.Ticket
	Deadline effects.Time
	Items    []Item
	Sources  []Source
}

// An Item is a chunk of a fetch. If Local has a generation, the chunk is in that local page, which the caller keeps
// unchanged until a LocalReleased report names Pin. Otherwise the chunk is in the page Remote of the source at index
// Source of Fetch.Sources, and has Length bytes.
type Item struct {
	Local  effects.Page
	Pin    table.Handle
	Source uint32
	Remote effects.RemotePage
	Length uint32
}

func (it *Item) isLocal() bool { return it.Local.Generation != 0 }

// A Source is a read lease that a peer has granted. ID is the caller's handle of the lease.
type Source struct {
	ID    table.Handle
	Name  string // the peer's name for itself, for messages to people
	Link  effects.Link
	Peer  effects.Incarnation
	Grant effects.GrantID
	// Since is the earliest time at which the lease may have begun, for drivers. Rights has the end of the lease.
	Since effects.Time `snap:"skip"`
}

// Rights is the interface through which the pipeline asks when the right to read from a source ends, by the clock of
// this rank and with renewals (rule M4). The pipeline asks at the time of use, so a renewal does not have to find the
// fetches. A source has a right until the source is reported as released.
type Rights interface {
	ReadDeadline(source table.Handle) effects.Time
}

// A source is a Source of a fetch in progress. Invariant: a source is reported as released only when no read of it is
// in flight.
type source struct {
	Source
	unreadItems uint32       // items for which no read was submitted
	read        effects.Corr // the read of the source that has not settled; zero: none
	completed   bool         // the read has completed, but has not settled
	batch       uint32       // the batch of the read, counted from 1
	released    bool         // the source was reported as released
}

// A fetch is a command in progress. The outcome of a fetch and the end of a fetch are different events: after Deliver
// the fetch stays in the table until nothing touches the fetch's pages.
type fetch struct {
	ticket           effects.Ticket
	deadline         effects.Time
	timer            kernel.TimerID `snap:"set"`
	items            []Item
	sources          []source
	idlePages        []effects.Page // staging pages that nothing touches
	stagedPages      uint32         // staging pages, including the idle pages
	unreadItems      uint32         // remote items for which no read was submitted
	halves           [2]half
	next             uint32 // the first item that is not in any batch yet
	loadedBatches    uint32 // number of batches that were begun
	scatteredBatches uint32 // number of batches that were scattered
	releasedBefore   int    // all sources before this index were reported as released
	readBefore       uint32 // no source from this index on was read
	unneededReleased bool   // the sources without anything to read were reported as released
	delivered        bool
	returnDue        bool // delivered with Held: a Return is due
}

// ticketHash returns the hash of a ticket.
func ticketHash(t effects.Ticket) uint64 { return uint64(t) * 0x9E3779B97F4A7C15 }

// OpenFetch accepts a fetch. With OK the pipeline owns the fetch: it will be delivered by its deadline, perhaps during
// this call, and everything that the caller lent will be reported. With any other code nothing has happened.
func (p *Pipeline) OpenFetch(v *env.Env, rights Rights, c *Fetch) (effects.Code, effects.Why) {
	if code, why := p.checkFetch(v, c); code != effects.OK {
		return code, why
	}
	h, f := p.fetches.Add()
	if f == nil {
		v.Out.Mark(Marks.FetchesFull)
		return effects.TooMany, effects.Why{
			Field: "tables.commands", Ours: strconv.Itoa(p.fetches.Max()) + ", and as many fetches are in progress",
		}
	}
	*f = fetch{
		ticket: c.Ticket, deadline: c.Deadline, items: append(f.items[:0], c.Items...), sources: f.sources[:0],
		idlePages: f.idlePages[:0],
		halves:    [2]half{{pages: f.halves[0].pages[:0]}, {pages: f.halves[1].pages[:0]}},
	}
	for _, s := range c.Sources {
		f.sources = append(f.sources, source{Source: s})
	}
	for i := range f.items {
		if it := &f.items[i]; !it.isLocal() {
			f.sources[it.Source].unreadItems++
			f.unreadItems++
		}
	}
	p.byTicket.Add(ticketHash(c.Ticket), h)
	v.Timers.Set(&f.timer, c.Deadline, kernel.Ref{Owner: kernel.OwnerPipeline, Kind: timerFetch, Subject: h})
	if f.unreadItems > 0 {
		p.fetches.PushBack(&p.shortFetches, h)
		p.AdmitFetches(v, rights)
	}
	if f = p.fetches.Get(h); f != nil {
		if p.fetches.InList(h) {
			v.Out.Mark(Marks.StagingShort)
		}
		p.advanceFetch(v, rights, h, f)
		p.releaseUnused(v, h, f)
	}
	return effects.OK, effects.Why{}
}

// checkFetch returns OK, or the reason why a fetch is refused.
func (p *Pipeline) checkFetch(v *env.Env, c *Fetch) (effects.Code, effects.Why) {
	switch {
	case p.draining:
		return effects.Draining, effects.Why{}
	case len(c.Items) == 0:
		return effects.Invalid, effects.Why{Field: "Keys", Theirs: "empty", Ours: "one or more"}
	case len(c.Items) > int(p.cfg.ItemsMax) || len(c.Sources) > int(p.cfg.SourcesMax):
		return effects.TooLarge, effects.Why{
			Field: "Keys", Theirs: strconv.Itoa(len(c.Items)), Ours: "at most " +
				strconv.Itoa(int(p.cfg.ItemsMax)) + " (limits.keys_per_batch)",
		}
	case c.Deadline <= v.Now:
		return effects.Expired, effects.Why{Field: "pull.fetch_timeout", Ours: "over when the last chunk arrived"}
	}
	for i := range c.Items {
		it := &c.Items[i]
		switch {
		case it.isLocal():
			if it.Local.Length == 0 || !v.Pools.IsLive(it.Local) {
				return effects.Invalid, invalidItem(i)
			}
		case it.Length == 0 || uint64(it.Length) > p.cfg.PageBytes || int(it.Source) >= len(c.Sources):
			return effects.Invalid, invalidItem(i)
		}
	}
	return effects.OK, effects.Why{}
}

// invalidItem returns the reason for refusing an item that cannot be right.
func invalidItem(i int) effects.Why {
	return effects.Why{Field: "chunk " + strconv.Itoa(i), Theirs: "invalid"}
}

// AbortFetch ends the fetch of a command as Cancelled. AbortFetch reports whether there was a fetch without an outcome.
func (p *Pipeline) AbortFetch(v *env.Env, t effects.Ticket) bool {
	h := p.findFetch(t)
	f := p.fetches.Get(h)
	if f == nil || f.delivered {
		return false
	}
	v.Out.Mark(Marks.FetchAborted)
	p.endFetch(v, h, f, effects.Cancelled, f.stageReason())
	return true
}

// findFetch returns the fetch of a ticket, or zero.
func (p *Pipeline) findFetch(t effects.Ticket) table.Handle {
	for q := p.byTicket.Find(ticketHash(t)); q.Found(); q = p.byTicket.Next(q) {
		if p.fetches.Get(q.Handle()).ticket == t {
			return q.Handle()
		}
	}
	return 0
}
