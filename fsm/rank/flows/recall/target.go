package recall

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/peers/loan"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// A Target is who is recalled from: it says what there is, and lends it, in one step.
type Target struct {
	flow.Passive
	loans loan.Loans

	ask   protocol.CacheQueryRequest  `snap:"scratch"`
	reply protocol.CacheQueryResponse `snap:"scratch"`
}

// Emptied returns a Target that has lent nothing, in the memory of f, which is not used any more.
func (f *Target) Emptied(cfg loan.Config, classes int) Target {
	cfg.Owner, cfg.Kind = kernel.OwnerRecallTarget, kindLease
	return Target{loans: f.loans.Emptied(cfg, classes), ask: f.ask, reply: f.reply}
}

// Loans are what is out.
func (f *Target) Loans() *loan.Loans { return &f.loans }

// Due takes the end of a lease's time.
func (f *Target) Due(e *flow.Env, ref kernel.Ref) { f.loans.Due(&e.Env, &e.Store, ref) }

// Step takes the proof that nobody reads under a lease any more.
func (f *Target) Step(e *flow.Env, ref kernel.Ref, ev effects.Event) {
	switch ev.(type) {
	case *effects.Revoked:
		f.loans.Revoked(&e.Env, &e.Store, ref)
	default:
		kernel.Foreign("who is recalled from")
	}
}

// Serves reports that the target takes queries of what it has.
func (f *Target) Serves(c effects.Channel) (protocol.Tag, bool) {
	return protocol.TagNone, c == effects.ChannelQuery
}

// Receive takes such a query.
func (f *Target) Receive(e *flow.Env, x *effects.Received) { f.onQuery(e, x) }

// Busy adds the leases of each class.
func (f *Target) Busy(all []uint32) { f.loans.Busy(all) }

// Condemn marks the leases of a class as lost.
func (f *Target) Condemn(class int) { f.loans.Lose(class) }

// LostAt takes the lease at a slot back if it is lost.
func (f *Target) LostAt(e *flow.Env, slot int32) kernel.Where { return f.loans.LostAt(&e.Env, slot) }

// Left counts what a drain waits for: each lease ends in time.
func (f *Target) Left(*flow.Env) int { return f.loans.Len() }

// Tables shows what is in those of who is recalled from.
func (f *Target) Tables(visit table.Visit) { f.loans.Tables(visit) }

// State is where the lease of a Ref stands.
func (f *Target) State(_ *flow.Rooms, ref kernel.Ref) uint16 { return f.loans.State(ref) }

// TargetStateNames are the names of its states.
func TargetStateNames() []string { return []string{"prefix over", "prefix leased", "prefix revoked"} }

var _ flow.Flow = (*Target)(nil)
