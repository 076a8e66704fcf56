package recall

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/peers/loan"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// A Target answers queries: it looks up the chunks and leases the prefix that is there, in one step.
type Target struct {
	flow.Passive
	loans loan.Loans

	query protocol.CacheQueryRequest  `snap:"scratch"`
	reply protocol.CacheQueryResponse `snap:"scratch"`
}

// Recycle returns a Target that has leased nothing. The memory of f is reused, so f must not be used afterwards.
func (f *Target) Recycle(cfg loan.Config, classes int) Target {
	cfg.Owner, cfg.Kind = kernel.OwnerRecallTarget, kindLease
	return Target{loans: f.loans.Recycle(cfg, classes), query: f.query, reply: f.reply}
}

// Loans returns the leases that are given out.
func (f *Target) Loans() *loan.Loans { return &f.loans }

// OnTimer handles the end of a lease's time.
func (f *Target) OnTimer(e *flow.Env, ref kernel.Ref) { f.loans.OnTimer(&e.Env, &e.Store, ref) }

// Step handles the proof that nothing reads under a lease any more.
func (f *Target) Step(e *flow.Env, ref kernel.Ref, ev effects.Event) {
	switch ev.(type) {
	case *effects.Revoked:
		f.loans.OnRevoked(&e.Env, &e.Store, ref)
	default:
		kernel.PanicUnexpected("the recall target")
	}
}

// ServedTag reports that the Target takes the messages of the query channel.
func (f *Target) ServedTag(c effects.Channel) (protocol.Tag, bool) {
	return protocol.TagNone, c == effects.ChannelQuery
}

// HandleMessage takes a query.
func (f *Target) HandleMessage(e *flow.Env, x *effects.Received) { f.handleQuery(e, x) }

// AddClassRows adds the number of leases of each class to all.
func (f *Target) AddClassRows(all []uint32) { f.loans.AddClassRows(all) }

// CondemnClass marks the leases of a class as lost.
func (f *Target) CondemnClass(class int) { f.loans.CondemnClass(class) }

// SweepLost revokes the lease at a slot if it is marked as lost.
func (f *Target) SweepLost(e *flow.Env, slot int32) kernel.VisitResult {
	return f.loans.SweepLost(&e.Env, slot)
}

// CountUnfinished returns the number of leases that a drain waits for: each lease ends in time.
func (f *Target) CountUnfinished(*flow.Env) int { return f.loans.Len() }

// VisitTables visits the tables of the Target.
func (f *Target) VisitTables(visit table.VisitFunc) { f.loans.VisitTables(visit) }

// RowState returns the state of the lease that ref names.
func (f *Target) RowState(_ *flow.Rooms, ref kernel.Ref) uint16 { return f.loans.RowState(ref) }

// TargetStateNames returns the names of the states, in order.
func TargetStateNames() []string { return []string{"prefix over", "prefix leased", "prefix revoked"} }

var _ flow.Flow = (*Target)(nil)
