package loan

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/fsm/table"
)

// How a loan ends: by its reader's word or by its time, where that proves that nobody reads; else it is revoked, and is
// over with the proof. What the pins forbid is forbidden until then.

// Done takes the word of a life of a peer, which calls us so, that it reads no more under a grant.
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

// Due takes the end of a loan's time.
func (l *Loans) Due(v *env.Env, s *store.Store, ref kernel.Ref) {
	if l.loans.Get(ref.Subject).lease.EndByTime(v, l.cfg.Leased) {
		v.Out.Mark(Marks.ByTime)
		l.over(v, s, ref.Subject)
	}
}

// Revoked takes the proof that nobody reads under a loan any more.
func (l *Loans) Revoked(v *env.Env, s *store.Store, ref kernel.Ref) {
	if l.loans.Get(ref.Subject).lease.Revoked(v) {
		v.Out.Mark(Marks.Revoked)
		l.over(v, s, ref.Subject)
	}
}

// Lose condemns what is lent to a peer that is gone: its link was the way on which it reads. For planes that can take a
// lease back alone; elsewhere it may read on, until its time is over.
func (l *Loans) Lose(class int) { l.losses.Add(class) }

// lost says that a loan is condemned: nobody is told of it again.
func (l *Loans) lost(x *Loan) bool { return l.losses.Over(x.Class, x.born) }

// LostAt takes the loan at a slot back if it is condemned, for sweeps.
func (l *Loans) LostAt(v *env.Env, slot int32) kernel.Where {
	if x := l.loans.Get(l.loans.At(slot)); x != nil && l.lost(x) && x.lease.Stands() {
		v.Out.Mark(Marks.Lost)
		v.Work.Spend(1)
		x.lease.Withdraw(v)
	}
	return kernel.At(slot < l.loans.Slots())
}

// Busy adds to each class what is lent to it: while there is any the class stays its peer's.
func (l *Loans) Busy(into []uint32) {
	for class := range into {
		into[class] += uint32(l.counts.Of(class))
	}
}

// Tables shows what is in this room's tables; to look at only.
func (l *Loans) Tables(visit table.Visit) {
	visit("leased prefixes", l.loans.Len(), table.Empty)
	visit("leased prefixes of classes", l.counts.All(), table.Empty)
	visit("pinned pages of classes", l.pages.All(), table.Empty)
	visit("arena pages of classes", l.arena.All(), table.Empty)
}

// State is where the loan of a Ref stands.
func (l *Loans) State(ref kernel.Ref) uint16 {
	switch x := l.loans.Get(ref.Subject); {
	case x == nil:
		return 0
	case x.lease.Stands():
		return 1
	}
	return 2
}

// States is how many there are: it is over, it stands, its end was asked for.
const States = 3
