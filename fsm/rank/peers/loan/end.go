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

// HandleDone handles a peer's message that the peer has stopped reading under a grant. The two incarnation names must
// identify the lease holder, and the sender must have proved the holder's identity; otherwise the message changes nothing
// (rule M2).
func (l *Loans) HandleDone(v *env.Env, s *store.Store, sender effects.Principal, peer, self effects.Incarnation, grant uint64) {
	ref := v.Pools.OwnerOf(effects.GrantID(grant))
	if ref.Owner != l.cfg.Owner || ref.Kind != l.cfg.Kind {
		return
	}
	x := l.rows.Get(ref.Subject)
	if x.lease.IsInForce() && x.lease.IsHeldBy(sender, peer, self, grant) && x.lease.EndByDone(v, l.cfg.Leased) {
		v.Out.Mark(Marks.ByDone)
		l.removeLoan(v, s, ref.Subject)
	}
}

// OnTimer handles the end of a loan's time.
func (l *Loans) OnTimer(v *env.Env, s *store.Store, ref kernel.Ref) {
	if l.rows.Get(ref.Subject).lease.EndByTime(v, l.cfg.Leased) {
		v.Out.Mark(Marks.ByTime)
		l.removeLoan(v, s, ref.Subject)
	}
}

// OnRevoked handles the plane's confirmation that nobody reads under a loan any more.
func (l *Loans) OnRevoked(v *env.Env, s *store.Store, ref kernel.Ref) {
	if l.rows.Get(ref.Subject).lease.OnRevoked(v) {
		v.Out.Mark(Marks.Revoked)
		l.removeLoan(v, s, ref.Subject)
	}
}

// CondemnClass condemns the loans of a peer that is gone, because the peer reads through the link that was lost.
// CondemnClass is only for planes that can take a lease back. On the remaining planes the peer may read on until the
// time of the lease is over.
func (l *Loans) CondemnClass(class int) { l.losses.CondemnRows(class) }

// isCondemned reports whether a loan is condemned. A condemned loan is not named in a reply again.
func (l *Loans) isCondemned(x *Loan) bool { return l.losses.IsCondemned(x.Class, x.lossCount) }

// SweepLost revokes the loan at a slot if the loan is condemned. It serves a sweep over all loans.
func (l *Loans) SweepLost(v *env.Env, slot int32) kernel.VisitResult {
	if x := l.rows.Get(l.rows.At(slot)); x != nil && l.isCondemned(x) && x.lease.IsInForce() {
		v.Out.Mark(Marks.Lost)
		v.Work.SpendRows(1)
		x.lease.RevokeLost(v)
	}
	return kernel.NextSlotIf(slot < l.rows.Slots())
}

// AddClassRows adds the number of loans of each class to the counts. A class with loans stays with its peer.
func (l *Loans) AddClassRows(into []uint32) {
	for class := range into {
		into[class] += uint32(l.counts.CountOf(class))
	}
}

// VisitTables reports the sizes of this package's tables to visit. It is for inspection only.
func (l *Loans) VisitTables(visit table.VisitFunc) {
	visit("leased prefixes", l.rows.Len(), table.Empty)
	visit("leased prefixes of classes", l.counts.Total(), table.Empty)
	visit("pinned pages of classes", l.pages.Total(), table.Empty)
	visit("arena pages of classes", l.arena.Total(), table.Empty)
}

// RowState returns the state of the loan of a Ref: 0 if the loan is over, 1 if the lease is in force, 2 if a revocation
// was requested.
func (l *Loans) RowState(ref kernel.Ref) uint16 {
	switch x := l.rows.Get(ref.Subject); {
	case x == nil:
		return 0
	case x.lease.IsInForce():
		return 1
	}
	return 2
}

// StateCount is the number of values of RowState.
const StateCount = 3
