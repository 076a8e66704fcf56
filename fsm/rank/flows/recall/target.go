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

	ask   protocol.CacheQueryRequest  `snap:"scratch"`
	reply protocol.CacheQueryResponse `snap:"scratch"`
}

// Emptied returns a Target that has leased nothing. The memory of f is reused, so f must not be used afterwards.
func (f *Target) Emptied(cfg loan.Config, classes int) Target {
	cfg.Owner, cfg.Kind = kernel.OwnerRecallTarget, kindLease
	return Target{loans: f.loans.Emptied(cfg, classes), ask: f.ask, reply: f.reply}
}

// Loans returns the leases that are given out.
func (f *Target) Loans() *loan.Loans { return &f.loans }

// Due handles the end of a lease's time.
func (f *Target) Due(e *flow.Env, ref kernel.Ref) { f.loans.Due(&e.Env, &e.Store, ref) }

// Step handles the proof that nothing reads under a lease any more.
func (f *Target) Step(e *flow.Env, ref kernel.Ref, ev effects.Event) {
	switch ev.(type) {
	case *effects.Revoked:
		f.loans.Revoked(&e.Env, &e.Store, ref)
	default:
		kernel.Foreign("who is recalled from")
	}
}

// Serves reports that the Target takes the messages of the query channel.
func (f *Target) Serves(c effects.Channel) (protocol.Tag, bool) {
	return protocol.TagNone, c == effects.ChannelQuery
}

// Receive takes a query.
func (f *Target) Receive(e *flow.Env, x *effects.Received) { f.onQuery(e, x) }

// Busy adds the number of leases of each class to all.
func (f *Target) Busy(all []uint32) { f.loans.Busy(all) }

// Condemn marks the leases of a class as lost.
func (f *Target) Condemn(class int) { f.loans.Lose(class) }

// LostAt revokes the lease at a slot if it is marked as lost.
func (f *Target) LostAt(e *flow.Env, slot int32) kernel.Where { return f.loans.LostAt(&e.Env, slot) }

// Left returns the number of leases that a drain waits for: each lease ends in time.
func (f *Target) Left(*flow.Env) int { return f.loans.Len() }

// Tables visits the tables of the Target.
func (f *Target) Tables(visit table.Visit) { f.loans.Tables(visit) }

// State returns the state of the lease that ref names.
func (f *Target) State(_ *flow.Rooms, ref kernel.Ref) uint16 { return f.loans.State(ref) }

// TargetStateNames returns the names of the states, in order.
func TargetStateNames() []string { return []string{"prefix over", "prefix leased", "prefix revoked"} }

var _ flow.Flow = (*Target)(nil)
