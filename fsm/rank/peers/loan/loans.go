// Package loan has the prefixes of ready chunks that peers may read: who answers a peer looks one up and lends it here.
//
// Three hold the pages of a loan for the same time. A pin says that the store does not give the chunk up, so that the
// next one who asks finds it; a read grant says that nobody writes the page; the lease says until when. A caller may
// rely on this: in one step all three begin, and in one step all three end; an operation that is asked for again has
// the loan that it has; and no class has more of them, or of pages under them, than it leaves. It knows no message.
//
// With an arena chunks are copied first: they are pinned until that has settled, and then their copies are lent alone.
package loan

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/fsm/rank/peers/lease"
	"github.com/kvferry/kvferry/fsm/table"
)

// Config is what loans go by.
type Config struct {
	Owner    kernel.Owner // of the loans: it hears of their ends
	Kind     uint8        // of its Refs that are of loans
	LoansMax uint32
	PagesMax uint32
	TTL      effects.Duration
	Leased   bool   // nobody sees what peers read
	Whole    uint32 // bytes of a page: a shorter chunk is not lent, where peers cannot be told its length; 0: all are
	Arena    uint32 // pages of the arena; 0: what is lent is not copied
}

// Loans are those of one flow.
type Loans struct {
	cfg    Config `snap:"share"`
	loans  table.Slab[Loan]
	byName table.Index // by who asked and its operation
	counts table.Share // of loans, by class
	pages  table.Share // of the pages under them, by class
	arena  table.Share // of pages of the arena, likewise
	losses kernel.Losses

	entries []store.Entry  `snap:"scratch"`
	found   []effects.Page `snap:"scratch"`
	cut     bool           `snap:"scratch"` // more was there than the class may have
}

// Emptied returns an empty table, in the memory of l, which is not used any more.
func (l *Loans) Emptied(cfg Config, classes int) Loans {
	return Loans{
		cfg: cfg, loans: l.loans.Emptied(int(cfg.LoansMax)), byName: l.byName.Emptied(),
		counts: l.counts.Emptied(int(cfg.LoansMax), classes), pages: l.pages.Emptied(int(cfg.PagesMax), classes),
		arena:  l.arena.Emptied(int(cfg.Arena), classes),
		losses: l.losses.Emptied(classes), entries: l.entries, found: l.found,
	}
}

// A Loan is a prefix that one peer may read.
type Loan struct {
	For
	lease   lease.Owner
	hash    uint64 // of peer and operation, as in byName
	until   effects.Time
	born    kernel.Birth  // as losses
	entries []store.Entry // pinned
	pages   []effects.Page
	copies  int  // pages of the arena that are its
	cut     bool // more was there than its class may have
}

// A For is who a loan is for, and what of.
type For struct {
	To        lease.Reader
	Class     int
	Operation uint64
	What      uint64       // which keys were asked for
	Row       table.Handle // whose transfer of ours it is kept for; zero: it is lent
}

// Pages are those that may be read, in the order of their keys.
func (x *Loan) Pages() []effects.Page { return x.pages }

// Cut reports whether the loan is shorter than what was there, because its class may have no more.
func (x *Loan) Cut() bool { return x.cut }

// Grant is the read grant over them.
func (x *Loan) Grant() uint64 {
	grant, _ := x.lease.Terms()
	return grant
}

// Left is how long the loan stands from now on.
func (x *Loan) Left(now effects.Time) effects.Duration { return x.until.Sub(now) }

// Again notes that one more answer speaks of the loan.
func (x *Loan) Again() { x.lease.Spoke() }

// Named is a number for a list of keys: an operation that comes again has the same.
func Named(s *store.Store, keys [][]byte) uint64 {
	n := uint64(len(keys))
	for _, key := range keys {
		n = n*0x9E3779B97F4A7C15 ^ s.Hash(key)
	}
	return n
}

// Prefix looks up the longest prefix of keys that can be read, no longer than what a class may have, and says how long
// it is. What is being written, or is wanted back by its engine, ends it.
func (l *Loans) Prefix(v *env.Env, s *store.Store, class int, keys [][]byte) int {
	l.entries, l.found, l.cut = l.entries[:0], l.found[:0], false
	most := l.pages.Left(class)
	for _, key := range keys {
		h := s.Find(s.Hash(key), key)
		page, ready := s.Ready(h)
		if !ready || s.Leaving(h) || v.Pools.Of(page).Written(page) || l.cfg.Whole > page.Length {
			break
		}
		if len(l.found) >= most {
			v.Out.Mark(Marks.PrefixCut)
			l.cut = true
			break
		}
		l.entries, l.found = append(l.entries, h), append(l.found, page)
	}
	return len(l.found)
}

// Cut reports whether the prefix that Prefix found is shorter than what is there, because the class may have no more.
func (l *Loans) Cut() bool { return l.cut }

// CutOf reports the same of what Keep began.
func (l *Loans) CutOf(h table.Handle) bool { return l.loans.Get(h).cut }

// May says whether a class may have one more loan.
func (l *Loans) May(v *env.Env, class int) bool { return v.Pools.CanLend() && l.counts.May(class) }

// Lend pins what Prefix found and leases it to a peer. May must hold.
func (l *Loans) Lend(v *env.Env, s *store.Store, to For) *Loan {
	h := l.add(v, s, to)
	x := l.loans.Get(h)
	x.lease.Grant(v, x.pages, to.To, l.cfg.TTL, kernel.Ref{Owner: l.cfg.Owner, Kind: l.cfg.Kind, Subject: h})
	return x
}

// Keep pins what Prefix found, and holds its pages, for a transfer of ours to a peer, until Release. May must hold. The
// pages are the caller's to look at now.
func (l *Loans) Keep(v *env.Env, s *store.Store, to For) (table.Handle, []effects.Page) {
	h := l.add(v, s, to)
	pages := l.loans.Get(h).pages
	for _, page := range pages {
		v.Pools.Of(page).Hold(page)
	}
	return h, pages
}

// Release ends what was kept: the transfer has settled.
func (l *Loans) Release(v *env.Env, s *store.Store, h table.Handle) {
	for _, page := range l.loans.Get(h).pages {
		v.Pools.Of(page).Unhold(page)
	}
	l.over(v, s, h)
}

// add pins what Prefix found for a peer.
func (l *Loans) add(v *env.Env, s *store.Store, to For) table.Handle {
	h, x := l.loans.Add()
	*x = Loan{
		For: to, hash: l.name(s, to.To.Who, to.Operation), until: v.Now.Add(l.cfg.TTL), born: l.losses.Of(to.Class),
		entries: append(x.entries[:0], l.entries...), pages: append(x.pages[:0], l.found...), cut: l.cut,
	}
	l.byName.Add(x.hash, h)
	l.counts.Take(x.Class)
	l.pages.Add(x.Class, len(x.pages))
	for _, entry := range x.entries {
		s.Pin(entry, 0, v) // For no request: nobody's claim ends.
	}
	return h
}

// over unpins what a loan was of: nobody reads under it any more.
func (l *Loans) over(v *env.Env, s *store.Store, h table.Handle) {
	x := l.loans.Get(h)
	v.Work.Spend(len(x.entries))
	l.unpin(v, s, x)
	l.drop(v, x)
	l.counts.Give(x.Class)
	l.byName.Remove(x.hash, h)
	x.entries, x.pages = table.Shed(x.entries), table.Shed(x.pages)
	l.loans.Remove(h)
}

// unpin lets the store give up what a loan was of.
func (l *Loans) unpin(v *env.Env, s *store.Store, x *Loan) {
	for _, entry := range x.entries {
		s.Unpin(entry, v)
	}
	l.pages.Add(x.Class, -len(x.entries))
	x.entries = x.entries[:0]
}

// name is the hash of who asks and of its operation.
func (l *Loans) name(s *store.Store, who effects.Incarnation, operation uint64) uint64 {
	return s.Hash(who[:]) ^ operation*0x9E3779B97F4A7C15
}

// Find is the loan of an operation, or nil; to look at now.
func (l *Loans) Find(s *store.Store, who effects.Incarnation, operation uint64) *Loan {
	for p := l.byName.Seek(l.name(s, who, operation)); p.Found(); p = l.byName.Next(p) {
		if x := l.loans.Get(p.Handle()); x.To.Who == who && x.Operation == operation {
			return x
		}
	}
	return nil
}

// Stands says whether a loan may be spoken of again: it is not condemned, and its time is not over.
func (l *Loans) Stands(v *env.Env, x *Loan) bool {
	return x.lease.Stands() && !l.lost(x) && v.Now < x.until
}

// Out is how many pages are pinned for them; one counts as often as it is. To look at only.
func (l *Loans) Out() int { return l.pages.All() }

// Len is the number of loans that are out.
func (l *Loans) Len() int { return l.loans.Len() }
