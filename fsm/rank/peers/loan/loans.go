// Package loan holds the read leases that this node has given to peers on prefixes of ready chunks. The flow that
// answers a lookup or a recall of a peer finds the prefix here and leases the pages. The package knows no messages.
//
// The pages of a loan are protected in three ways for the same time. A pin keeps the store from evicting the chunk, so
// that the next peer that asks finds the chunk. A read grant keeps the page from being written (rule M1 in
// docs/safety.md). A lease limits the time (rule M4).
//
// A caller may rely on the following:
//
//   - The pin, the grant and the lease begin in the same step and end in the same step.
//   - A retry of an operation gets the loan that the operation already has.
//   - No fairness class has more loans, or more pages under loans, than its share.
//
// Instead of leasing a prefix, a flow can keep its pages for a transfer of this node to the peer (Keep, Release).
//
// With an arena the chunks are copied first. The chunks are pinned until the copy has settled, and then only the copies
// are leased (copied.go).
//
// Example: a peer asks which chunks of a prompt this node has. Prefix finds that the first three are ready, and May
// reports that the peer's class may have another loan. Lend pins the three chunks and grants the pages to the peer
// until the lease ends. The reply is lost and the peer repeats the request: Find returns the same loan, and the reply
// states the remaining time. After reading the pages the peer sends a done message. On a leased plane Done ends the
// loan at once. On a fenced plane Done requests a revocation, and the loan ends when Revoked receives the confirmation.
package loan

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/fsm/rank/peers/lease"
	"github.com/kvferry/kvferry/fsm/table"
)

// Config is the configuration of Loans.
type Config struct {
	Owner    kernel.Owner     // the flow that owns the loans and receives their ends
	Kind     uint8            // kind of the flow's Refs that belong to loans
	LoansMax uint32           // limit of loans
	PagesMax uint32           // limit of pages under loans
	TTL      effects.Duration // duration of a lease
	Leased   bool             // the plane is leased: the owner cannot observe what peers read
	// Page size in bytes; shorter chunks are not leased, because peers cannot be told their length; 0: all chunks are
	// leased.
	Whole uint32
	Arena uint32 // number of pages of the arena; 0: chunks are leased without a copy
}

// Loans is the table of the loans of one flow.
type Loans struct {
	cfg    Config `snap:"share"`
	loans  table.Slab[Loan]
	byName table.Index // by peer and operation
	counts table.Share // loans of each class
	pages  table.Share // pages under loans of each class
	arena  table.Share // arena pages of each class
	losses kernel.Losses

	entries []store.Entry  `snap:"scratch"`
	found   []effects.Page `snap:"scratch"`
	cut     bool           `snap:"scratch"` // more chunks were ready than the class may have
}

// Emptied returns an empty table that reuses the memory of l, which must not be used afterwards.
func (l *Loans) Emptied(cfg Config, classes int) Loans {
	return Loans{
		cfg: cfg, loans: l.loans.Emptied(int(cfg.LoansMax)), byName: l.byName.Emptied(),
		counts: l.counts.Emptied(int(cfg.LoansMax), classes), pages: l.pages.Emptied(int(cfg.PagesMax), classes),
		arena:  l.arena.Emptied(int(cfg.Arena), classes),
		losses: l.losses.Emptied(classes), entries: l.entries, found: l.found,
	}
}

// Loan is a prefix of chunks that a peer may read.
type Loan struct {
	For
	lease lease.Owner
	hash  uint64       // hash of peer and operation, as in byName
	until effects.Time // when the lease ends
	// The class's loss count when the loan began; an older loan than the last loss is condemned.
	born    kernel.Birth
	entries []store.Entry  // the pinned chunks
	pages   []effects.Page // the pages that are leased, or kept for a transfer
	copies  int            // number of arena pages that the loan counts for
	cut     bool           // more chunks were ready than the class may have
}

// For identifies the peer and the operation of a loan.
type For struct {
	To        lease.Reader
	Class     int    // fairness class of the peer
	Operation uint64 // the peer's operation id, the same in a retry
	What      uint64 // number of the list of keys that was requested (Named)
	// Row of the transfer of this node for which the pages are kept; zero: the pages are leased.
	Row table.Handle
}

// Pages returns the pages of the loan in the order of their keys.
func (x *Loan) Pages() []effects.Page { return x.pages }

// Cut reports whether the loan is shorter than the prefix that was ready, because of the share of the peer's class.
func (x *Loan) Cut() bool { return x.cut }

// Grant returns the read grant over the pages.
func (x *Loan) Grant() uint64 {
	grant, _ := x.lease.Terms()
	return grant
}

// Left returns the remaining time of the lease.
func (x *Loan) Left(now effects.Time) effects.Duration { return x.until.Sub(now) }

// Again records that another reply names the loan.
func (x *Loan) Again() { x.lease.Spoke() }

// Named returns a number for a list of keys, by which a retry of an operation is recognized.
func Named(s *store.Store, keys [][]byte) uint64 {
	n := uint64(len(keys))
	for _, key := range keys {
		n = n*0x9E3779B97F4A7C15 ^ s.Hash(key)
	}
	return n
}

// Prefix finds the longest readable prefix of keys within the share of a class, and returns the length. A chunk that is
// being written, or that the engine wants back, ends the prefix.
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

// Cut reports whether the prefix that Prefix found is shorter than what is ready, because of the share of the class.
func (l *Loans) Cut() bool { return l.cut }

// CutOf reports the same for a loan that Keep began.
func (l *Loans) CutOf(h table.Handle) bool { return l.loans.Get(h).cut }

// May reports whether a class may have another loan.
func (l *Loans) May(v *env.Env, class int) bool { return v.Pools.CanLend() && l.counts.May(class) }

// Lend pins the prefix that Prefix found and leases it to a peer. The caller has checked May.
func (l *Loans) Lend(v *env.Env, s *store.Store, to For) *Loan {
	h := l.add(v, s, to)
	x := l.loans.Get(h)
	x.lease.Grant(v, x.pages, to.To, l.cfg.TTL, kernel.Ref{Owner: l.cfg.Owner, Kind: l.cfg.Kind, Subject: h})
	return x
}

// Keep pins the prefix that Prefix found, and holds the pages with in-flight references, for a transfer of this node to
// a peer. Release ends this. The caller has checked May, and must not store the returned pages.
func (l *Loans) Keep(v *env.Env, s *store.Store, to For) (table.Handle, []effects.Page) {
	h := l.add(v, s, to)
	pages := l.loans.Get(h).pages
	for _, page := range pages {
		v.Pools.Of(page).Hold(page)
	}
	return h, pages
}

// Release ends what Keep began, because the transfer has settled.
func (l *Loans) Release(v *env.Env, s *store.Store, h table.Handle) {
	for _, page := range l.loans.Get(h).pages {
		v.Pools.Of(page).Unhold(page)
	}
	l.over(v, s, h)
}

// add inserts a loan and pins the prefix that Prefix found.
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
		s.Pin(entry, 0, v) // request 0: the pin ends no request's claim
	}
	return h
}

// over removes a loan and unpins the chunks. Nobody reads under the loan any more.
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

// unpin allows the store to evict the chunks of a loan.
func (l *Loans) unpin(v *env.Env, s *store.Store, x *Loan) {
	for _, entry := range x.entries {
		s.Unpin(entry, v)
	}
	l.pages.Add(x.Class, -len(x.entries))
	x.entries = x.entries[:0]
}

// name returns the hash of a peer and an operation.
func (l *Loans) name(s *store.Store, who effects.Incarnation, operation uint64) uint64 {
	return s.Hash(who[:]) ^ operation*0x9E3779B97F4A7C15
}

// Find returns the loan of an operation, or nil. The result is valid during the current call and must not be stored.
func (l *Loans) Find(s *store.Store, who effects.Incarnation, operation uint64) *Loan {
	for p := l.byName.Seek(l.name(s, who, operation)); p.Found(); p = l.byName.Next(p) {
		if x := l.loans.Get(p.Handle()); x.To.Who == who && x.Operation == operation {
			return x
		}
	}
	return nil
}

// Stands reports whether a loan may be named in another reply: the lease is in force, the peer was not lost, and the
// time is not over.
func (l *Loans) Stands(v *env.Env, x *Loan) bool {
	return x.lease.Stands() && !l.lost(x) && v.Now < x.until
}

// Out returns the number of pins for loans. A page counts once for each loan. Out is for inspection only.
func (l *Loans) Out() int { return l.pages.All() }

// Len returns the number of loans.
func (l *Loans) Len() int { return l.loans.Len() }
