package p2p

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/flow"
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/loan"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// An Owner is who is asked for chunks: it says what there is, and lends it, in one step.
type Owner struct {
	cfg   OwnerConfig `snap:"share"`
	loans loan.Loans

	get   protocol.AscendBatchedLookupAndGetMsg     `snap:"scratch"`
	reply protocol.AscendBatchedLookupAndGetRetMsg  `snap:"scratch"`
	done  protocol.AscendBatchedLookupAndGetDoneMsg `snap:"scratch"`
}

// OwnerConfig is what an Owner goes by, beside what all flows do.
type OwnerConfig struct {
	DoneURL []byte // where dones are taken beside the lookup socket
	Loans   loan.Config
}

// kindLoan is what its Refs are for: the end of a loan's time, and the proof of its end.
const kindLoan uint8 = iota + 1

// Emptied returns an Owner that has lent nothing, in the memory of o, which is not used any more.
func (o *Owner) Emptied(cfg OwnerConfig, classes int) Owner {
	cfg.Loans.Owner, cfg.Loans.Kind = kernel.OwnerP2POwner, kindLoan
	return Owner{
		cfg: cfg, loans: o.loans.Emptied(cfg.Loans, classes), get: o.get, reply: o.reply, done: o.done,
	}
}

// Loans are what is out.
func (o *Owner) Loans() *loan.Loans { return &o.loans }

// Step takes a message, or the proof that nobody reads under a loan any more.
func (o *Owner) Step(e *flow.Env, ref kernel.Ref, ev effects.Event) {
	switch x := ev.(type) {
	case *effects.Received:
		o.onReceived(e, x)
	case *effects.Revoked:
		o.loans.Revoked(&e.Env, &e.Store, ref)
	default:
		kernel.Foreign("who is asked for chunks")
	}
}

// Due takes the end of a loan's time.
func (o *Owner) Due(e *flow.Env, ref kernel.Ref) { o.loans.Due(&e.Env, &e.Store, ref) }

// Signal is never given.
func (o *Owner) Signal(*flow.Env, kernel.Ref, flow.Signal) { kernel.Foreign("who is asked for chunks") }

// Abort has nothing to end: no command of ours is answered here.
func (o *Owner) Abort(*flow.Env, kernel.Ref) bool { return false }

// Left counts what a drain waits for: each loan ends in time.
func (o *Owner) Left(*flow.Env) int { return o.loans.Len() }

// Tables shows what is in those of the owner.
func (o *Owner) Tables(visit table.Visit) { o.loans.Tables(visit) }

// State is where the loan of a Ref stands.
func (o *Owner) State(_ *flow.Rooms, ref kernel.Ref) uint16 { return o.loans.State(ref) }

// OwnerStateNames are the names of its states.
func OwnerStateNames() []string { return []string{"loan over", "loan leased", "loan revoked"} }

var _ flow.Flow = (*Owner)(nil)
