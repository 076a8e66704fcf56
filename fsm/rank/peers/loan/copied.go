package loan

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/fsm/table"
)

// This file handles loans of copies. The chunks that Prefix found are kept while the copies are made in the arena, and
// then the copies are leased. No class has more arena pages than its share.

// Fits shortens the prefix that Prefix found to the arena pages that a class may have, and returns the new length.
func (l *Loans) Fits(v *env.Env, class int) int {
	if n := l.arena.Left(class); n < len(l.found) {
		v.Out.Mark(Marks.ArenaCut)
		l.cut = true
		l.entries, l.found = l.entries[:n], l.found[:n]
	}
	return len(l.found)
}

// KeepToCopy does the same as Keep, for a copy of each page to a page of the arena. The caller has called Fits.
func (l *Loans) KeepToCopy(v *env.Env, s *store.Store, to For) (table.Handle, []effects.Page) {
	h, pages := l.Keep(v, s, to)
	l.loans.Get(h).copies = len(pages)
	l.arena.Add(to.Class, len(pages))
	return h, pages
}

// Kept returns the pages of a loan that Keep began.
func (l *Loans) Kept(h table.Handle) []effects.Page { return l.loans.Get(h).pages }

// Lost reports whether the peer of a loan that Keep began was lost since then.
func (l *Loans) Lost(h table.Handle) bool { return l.lost(l.loans.Get(h)) }

// LendCopies ends what KeepToCopy began, because the copies have settled, and leases the copies. The caller passes the
// copies that are whole, from the first chunk on. The caller's references to the copies become references of the loan.
func (l *Loans) LendCopies(v *env.Env, s *store.Store, h table.Handle, copies []effects.Page) *Loan {
	x := l.loans.Get(h)
	for _, page := range x.pages {
		v.Pools.Of(page).Unhold(page)
	}
	v.Work.Spend(len(x.entries))
	l.unpin(v, s, x)
	l.arena.Add(x.Class, len(copies)-x.copies)
	x.Row, x.copies, x.until = 0, len(copies), v.Now.Add(l.cfg.TTL)
	x.pages = append(x.pages[:0], copies...)
	a := v.OfArena()
	x.lease.Grant(&a, x.pages, x.To, l.cfg.TTL, kernel.Ref{Owner: l.cfg.Owner, Kind: l.cfg.Kind, Subject: h})
	return x
}

// drop releases the arena pages of a loan, because nobody reads the copies any more.
func (l *Loans) drop(v *env.Env, x *Loan) {
	if x.copies == 0 {
		return
	}
	if x.Row == 0 { // Otherwise the copies still belong to the transfer that makes them.
		for _, page := range x.pages {
			v.Arena.Unref(page)
		}
	}
	l.arena.Add(x.Class, -x.copies)
}
