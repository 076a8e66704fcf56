package staging

import (
	"strconv"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// A Fetch is one command of the engine: items in the order in which it wants them. Its
// slices are borrowed for the call.
type Fetch struct {
	Ticket   effects.Ticket
	Deadline effects.Time
	Items    []Item
	Sources  []Source
}

// An Item is one chunk. It lies in the local page Local, which the caller keeps as it is
// until LocalReleased names Pin; or, where Local has no generation, in the page Remote of
// the source with this position in Fetch.Sources, and has Length bytes.
type Item struct {
	Local  effects.Page
	Pin    table.Handle
	Source uint32
	Remote effects.RemotePage
	Length uint32
}

func (it *Item) local() bool { return it.Local.Generation != 0 }

// A Source is one grant to read, of one peer: a transfer context. ID is the caller's own
// name for it. Since is when it was given at the earliest; until when it may be read its Rights say.
type Source struct {
	ID    table.Handle
	Name  string // what the peer calls itself, for people
	Link  effects.Link
	Peer  effects.Incarnation
	Grant effects.GrantID
	Since effects.Time `snap:"skip"` // when it was lent, at the earliest: for drivers
}

// Rights say when our right to read from a source ends, by our clock (rule M4), renewals included. Who has them is
// asked when it matters: so a renewal looks for no fetch. A source has one as long as it was not reported on.
type Rights interface {
	NotAfter(source table.Handle) effects.Time
}

type source struct {
	Source
	unread   uint32       // items whose read was not submitted
	read     effects.Corr // the one read of it that was not settled
	done     bool         // that read was completed, but not settled
	batch    uint32       // that read's batch, counted from 1
	released bool
}

// A fetch's outcome and its end are two things: after Deliver it stays as a ghost
// until nothing touches its pages.
type fetch struct {
	ticket    effects.Ticket
	deadline  effects.Time
	timer     kernel.TimerID `snap:"set"`
	items     []Item
	sources   []source
	idle      []effects.Page // staging pages that nothing touches
	staged    uint32         // staging pages, idle ones included
	unread    uint32         // remote items whose read was not submitted
	halves    [2]half
	next      uint32 // the first item that is in no batch yet
	loaded    uint32 // batches that were begun
	scattered uint32 // batches that have left
	lent      int    // sources before this one were reported on
	begun     uint32 // none from this one on was read of
	looked    bool   // those that nothing is to be read of were reported on
	delivered bool
	held      bool // delivered with Held: a Return is due
}

func ticketHash(t effects.Ticket) uint64 { return uint64(t) * 0x9E3779B97F4A7C15 }

// Open takes a fetch. With OK it is the room's: it is delivered by its deadline, perhaps in
// this very call, and everything it lent is reported on. Otherwise nothing has happened.
func (p *Pipeline) Open(v *env.Env, of Rights, c *Fetch) (effects.Code, effects.Why) {
	if code, why := p.check(v, c); code != effects.OK {
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
		idle:   f.idle[:0],
		halves: [2]half{{pages: f.halves[0].pages[:0]}, {pages: f.halves[1].pages[:0]}},
	}
	for _, s := range c.Sources {
		f.sources = append(f.sources, source{Source: s})
	}
	for i := range f.items {
		if it := &f.items[i]; !it.local() {
			f.sources[it.Source].unread++
			f.unread++
		}
	}
	p.byTicket.Add(ticketHash(c.Ticket), h)
	v.Timers.Set(&f.timer, c.Deadline, kernel.Ref{Owner: kernel.OwnerPipeline, Kind: timerFetch, Subject: h})
	if f.unread > 0 {
		p.fetches.PushBack(&p.short, h)
		p.Admit(v, of)
	}
	if f = p.fetches.Get(h); f != nil {
		if p.fetches.Listed(h) {
			v.Out.Mark(Marks.StagingShort)
		}
		p.pump(v, of, h, f)
		p.tidy(v, h, f)
	}
	return effects.OK, effects.Why{}
}

func (p *Pipeline) check(v *env.Env, c *Fetch) (effects.Code, effects.Why) {
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
		return effects.Expired, effects.Why{Field: "pull.fetch_timeout", Ours: "over as the last chunk came"}
	}
	for i := range c.Items {
		it := &c.Items[i]
		switch {
		case it.local():
			if it.Local.Length == 0 || !v.Pools.Lives(it.Local) {
				return effects.Invalid, senseless(i)
			}
		case it.Length == 0 || uint64(it.Length) > p.cfg.PageBytes || int(it.Source) >= len(c.Sources):
			return effects.Invalid, senseless(i)
		}
	}
	return effects.OK, effects.Why{}
}

func senseless(i int) effects.Why {
	return effects.Why{Field: "chunk " + strconv.Itoa(i), Theirs: "senseless"}
}

// Abort ends the fetch of this command as Cancelled, and says whether there was one to end.
func (p *Pipeline) Abort(v *env.Env, t effects.Ticket) bool {
	h := p.find(t)
	f := p.fetches.Get(h)
	if f == nil || f.delivered {
		return false
	}
	v.Out.Mark(Marks.FetchAborted)
	p.end(v, h, f, effects.Cancelled, f.state())
	return true
}

func (p *Pipeline) find(t effects.Ticket) table.Handle {
	for q := p.byTicket.Seek(ticketHash(t)); q.Found(); q = p.byTicket.Next(q) {
		if p.fetches.Get(q.Handle()).ticket == t {
			return q.Handle()
		}
	}
	return 0
}
