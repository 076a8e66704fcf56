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

// Step takes a question, and the proof that nobody reads under a lease any more.
func (f *Target) Step(e *flow.Env, ref kernel.Ref, ev effects.Event) {
	switch x := ev.(type) {
	case *effects.Received:
		f.onQuery(e, x)
	case *effects.Revoked:
		f.loans.Revoked(&e.Env, &e.Store, ref)
	default:
		kernel.Foreign("who is recalled from")
	}
}

// Signal is never given.
func (f *Target) Signal(*flow.Env, kernel.Ref, flow.Signal) {
	panic("BUG: recall.Target is told of what it has nothing to do with")
}

// Abort has nothing to end: no command of ours is answered here.
func (f *Target) Abort(*flow.Env, kernel.Ref) bool { return false }

// Left counts what a drain waits for: each lease ends in time.
func (f *Target) Left(*flow.Env) int { return f.loans.Len() }

// Tables shows what is in those of who is recalled from.
func (f *Target) Tables(visit table.Visit) { f.loans.Tables(visit) }

// State is where the lease of a Ref stands.
func (f *Target) State(_ *flow.Rooms, ref kernel.Ref) uint16 { return f.loans.State(ref) }

// TargetStateNames are the names of its states.
func TargetStateNames() []string { return []string{"prefix over", "prefix leased", "prefix revoked"} }

var _ flow.Flow = (*Target)(nil)
