package loan

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/fsm/table"
)

// This file handles loans of copies. The chunks that FindPrefix found are kept while the copies are made in the arena,
// and then the copies are leased. No class has more arena pages than its share.

// LimitToArena shortens the prefix that FindPrefix found to the arena pages that a class may have, and returns the new
// length.
func (l *Loans) LimitToArena(v *env.Env, class int) int {
	if n := l.arena.FreePlaces(class); n < len(l.foundPages) {
		v.Out.Mark(Marks.ArenaCut)
		l.foundCut = true
		l.foundEntries, l.foundPages = l.foundEntries[:n], l.foundPages[:n]
	}
	return len(l.foundPages)
}

// HoldForCopy does the same as HoldPrefix, for a copy of each page to a page of the arena. The caller has called
// LimitToArena.
func (l *Loans) HoldForCopy(v *env.Env, s *store.Store, request Request) (table.Handle, []effects.Page) {
	h, pages := l.HoldPrefix(v, s, request)
	l.rows.Get(h).copies = len(pages)
	l.arena.Add(request.Class, len(pages))
	return h, pages
}

// HeldPages returns the pages of a loan that HoldPrefix began.
func (l *Loans) HeldPages(h table.Handle) []effects.Page { return l.rows.Get(h).pages }

// IsCondemned reports whether the peer of a loan that HoldPrefix began was lost since then.
func (l *Loans) IsCondemned(h table.Handle) bool { return l.isCondemned(l.rows.Get(h)) }

// LendCopies ends what HoldForCopy began, because the copies have settled, and leases the copies. The caller passes the
// copies that are whole, from the first chunk on. The caller's references to the copies become references of the loan.
func (l *Loans) LendCopies(v *env.Env, s *store.Store, h table.Handle, copies []effects.Page) *Loan {
	x := l.rows.Get(h)
	for _, page := range x.pages {
		v.Pools.PoolOf(page).ReleaseHold(page)
	}
	v.Work.SpendRows(len(x.entries))
	l.unpinChunks(v, s, x)
	l.arena.Add(x.Class, len(copies)-x.copies)
	x.Row, x.copies, x.until = 0, len(copies), v.Now.Add(l.cfg.TTL)
	x.pages = append(x.pages[:0], copies...)
	a := v.ForArena()
	x.lease.GrantPages(&a, x.pages, x.Reader, l.cfg.TTL, kernel.Ref{Owner: l.cfg.Owner, Kind: l.cfg.Kind, Subject: h})
	return x
}

// releaseArena releases the arena pages of a loan, because nobody reads the copies any more.
func (l *Loans) releaseArena(v *env.Env, x *Loan) {
	if x.copies == 0 {
		return
	}
	if x.Row == 0 { // Otherwise the copies still belong to the transfer that makes them.
		for _, page := range x.pages {
			v.Arena.DropRef(page)
		}
	}
	l.arena.Add(x.Class, -x.copies)
}
