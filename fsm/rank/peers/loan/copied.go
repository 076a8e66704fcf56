package loan

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/fsm/table"
)

// Loans of copies: what is found is kept while it is copied to the arena, and then the copies are lent. No class has
// more of its pages than it leaves.

// Fits cuts what Prefix found to what a class may have of the arena, and says how long it is.
func (l *Loans) Fits(v *env.Env, class int) int {
	if n := l.arena.Left(class); n < len(l.found) {
		v.Out.Mark(Marks.ArenaCut)
		l.cut = true
		l.entries, l.found = l.entries[:n], l.found[:n]
	}
	return len(l.found)
}

// KeepToCopy is Keep for copies of each page to one of the arena. Fits must have cut what was found.
func (l *Loans) KeepToCopy(v *env.Env, s *store.Store, to For) (table.Handle, []effects.Page) {
	h, pages := l.Keep(v, s, to)
	l.loans.Get(h).copies = len(pages)
	l.arena.Add(to.Class, len(pages))
	return h, pages
}

// Kept are the pages of a loan that Keep began.
func (l *Loans) Kept(h table.Handle) []effects.Page { return l.loans.Get(h).pages }

// Lost says whether what is kept is for a peer that is gone since.
func (l *Loans) Lost(h table.Handle) bool { return l.lost(l.loans.Get(h)) }

// LendCopies ends what was kept, whose copies have settled, and leases those of them that are whole, from the first on.
// The caller's references to them are the loan's.
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

// drop gives the copies of a loan up: nobody reads them any more.
func (l *Loans) drop(v *env.Env, x *Loan) {
	if x.copies == 0 {
		return
	}
	if x.Row == 0 { // Else they are whose copies they are.
		for _, page := range x.pages {
			v.Arena.Unref(page)
		}
	}
	l.arena.Add(x.Class, -x.copies)
}
