package loan

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/fsm/table"
)

// This file handles the ends of loans. A loan ends with the reader's done message or with the lease's time, if that
// proves that nobody reads. Otherwise the loan is revoked, and ends with the confirmation.
//
// Invariant: the chunks stay pinned and the pages granted until the loan has ended (rules M1 and M4).

// Done handles a peer's message that the peer has stopped reading under a grant. The two incarnation names must
// identify the lease holder; otherwise the message changes nothing (rule M2).
func (l *Loans) Done(v *env.Env, s *store.Store, who, us effects.Incarnation, grant uint64) {
	ref := v.Pools.Owner(effects.GrantID(grant))
	if ref.Owner != l.cfg.Owner || ref.Kind != l.cfg.Kind {
		return
	}
	x := l.loans.Get(ref.Subject)
	if x.lease.Stands() && x.lease.SpokenOfBy(who, us, grant) && x.lease.EndByWord(v, l.cfg.Leased) {
		v.Out.Mark(Marks.ByDone)
		l.over(v, s, ref.Subject)
	}
}

// Due handles the end of a loan's time.
func (l *Loans) Due(v *env.Env, s *store.Store, ref kernel.Ref) {
	if l.loans.Get(ref.Subject).lease.EndByTime(v, l.cfg.Leased) {
		v.Out.Mark(Marks.ByTime)
		l.over(v, s, ref.Subject)
	}
}

// Revoked handles the plane's confirmation that nobody reads under a loan any more.
func (l *Loans) Revoked(v *env.Env, s *store.Store, ref kernel.Ref) {
	if l.loans.Get(ref.Subject).lease.Revoked(v) {
		v.Out.Mark(Marks.Revoked)
		l.over(v, s, ref.Subject)
	}
}

// Lose condemns the loans of a peer that is gone, because the peer reads through the link that was lost. Lose is only
// for planes that can take a lease back. On the remaining planes the peer may read on until the time of the lease is
// over.
func (l *Loans) Lose(class int) { l.losses.Add(class) }

// lost reports whether a loan is condemned. A condemned loan is not named in a reply again.
func (l *Loans) lost(x *Loan) bool { return l.losses.Over(x.Class, x.born) }

// LostAt revokes the loan at a slot if the loan is condemned. It serves a sweep over all loans.
func (l *Loans) LostAt(v *env.Env, slot int32) kernel.Where {
	if x := l.loans.Get(l.loans.At(slot)); x != nil && l.lost(x) && x.lease.Stands() {
		v.Out.Mark(Marks.Lost)
		v.Work.Spend(1)
		x.lease.Withdraw(v)
	}
	return kernel.At(slot < l.loans.Slots())
}

// Busy adds the number of loans of each class to the counts. A class with loans stays with its peer.
func (l *Loans) Busy(into []uint32) {
	for class := range into {
		into[class] += uint32(l.counts.Of(class))
	}
}

// Tables reports the sizes of this package's tables to visit. It is for inspection only.
func (l *Loans) Tables(visit table.Visit) {
	visit("leased prefixes", l.loans.Len(), table.Empty)
	visit("leased prefixes of classes", l.counts.All(), table.Empty)
	visit("pinned pages of classes", l.pages.All(), table.Empty)
	visit("arena pages of classes", l.arena.All(), table.Empty)
}

// State returns the state of the loan of a Ref: 0 if the loan is over, 1 if the lease is in force, 2 if a revocation
// was requested.
func (l *Loans) State(ref kernel.Ref) uint16 {
	switch x := l.loans.Get(ref.Subject); {
	case x == nil:
		return 0
	case x.lease.Stands():
		return 1
	}
	return 2
}

// States is the number of values of State.
const States = 3
