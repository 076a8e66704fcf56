package p2p

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/peers/loan"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// An Owner is who is asked for chunks: it says what there is, and lends it, in one step.
type Owner struct {
	cfg      OwnerConfig `snap:"share"`
	loans    loan.Loans
	pushes   pushes
	copyings copyings

	get   protocol.AscendBatchedLookupAndGetMsg     `snap:"scratch"`
	reply protocol.AscendBatchedLookupAndGetRetMsg  `snap:"scratch"`
	done  protocol.AscendBatchedLookupAndGetDoneMsg `snap:"scratch"`
}

// OwnerConfig is what an Owner goes by, beside what all flows do.
type OwnerConfig struct {
	DoneURL   []byte // where dones are taken beside the lookup socket
	PushesMax uint32 // in progress, and what is being copied
	Loans     loan.Config
}

// What its Refs are for.
const (
	kindLoan uint8 = iota + 1 // the end of a loan's time, and the proof of its end
	kindPush                  // a write, and the time by which its link is to be made
	kindCopy                  // a copy, which is its attempt, and the time for all of a question
)

// Emptied returns an Owner that has lent nothing, in the memory of o, which is not used any more.
func (o *Owner) Emptied(cfg OwnerConfig, classes int) Owner {
	cfg.Loans.Owner, cfg.Loans.Kind = kernel.OwnerP2POwner, kindLoan
	return Owner{
		cfg: cfg, loans: o.loans.Emptied(cfg.Loans, classes),
		pushes: o.pushes.emptied(cfg.PushesMax, cfg.Loans.LoansMax, classes), get: o.get, reply: o.reply, done: o.done,
		copyings: copyings{rows: o.copyings.rows.Emptied(int(copiesOf(&cfg))), pairs: o.copyings.pairs},
	}
}

// copiesOf is for how many questions chunks are copied at a time.
func copiesOf(cfg *OwnerConfig) uint32 {
	if cfg.Loans.Arena == 0 {
		return 0
	}
	return cfg.PushesMax
}

// Loans are what is out.
func (o *Owner) Loans() *loan.Loans { return &o.loans }

// Step takes a message, the proof that nobody reads under a loan any more, or what became of a write or a copy.
func (o *Owner) Step(e *flow.Env, ref kernel.Ref, ev effects.Event) {
	switch x := ev.(type) {
	case *effects.Received:
		o.onReceived(e, x)
	case *effects.TransferDone:
		o.written(e, ref.Subject, x)
	case *effects.CopyDone:
		o.copyEnded(e, ref, x.Code, x.Settled)
	case *effects.Settled:
		if ref.Kind == kindCopy {
			o.copySettled(e, ref)
			break
		}
		o.settledPush(e, ref.Subject)
	case *effects.Revoked:
		o.loans.Revoked(&e.Env, &e.Store, ref)
	default:
		kernel.Foreign("who is asked for chunks")
	}
}

// Due takes the end of a loan's time, that of a link which is to be made, or of copies.
func (o *Owner) Due(e *flow.Env, ref kernel.Ref) {
	switch ref.Kind {
	case kindPush:
		o.late(e, ref.Subject)
	case kindCopy:
		o.copyLate(e, ref.Subject)
	default:
		o.loans.Due(&e.Env, &e.Store, ref)
	}
}

// Signal is told how an attempt ended to reach the pages of a peer.
func (o *Owner) Signal(_ *flow.Env, _ kernel.Ref, s flow.Signal) {
	if s.Kind != flow.Reached {
		kernel.Foreign("who is asked for chunks")
	}
	o.reached(s.Class, s.Code)
}

// Abort has nothing to end: no command of ours is answered here.
func (o *Owner) Abort(*flow.Env, kernel.Ref) bool { return false }

// Left counts what a drain waits for: each loan ends in time.
func (o *Owner) Left(*flow.Env) int { return o.loans.Len() }

// Tables shows what is in those of the owner.
func (o *Owner) Tables(visit table.Visit) { o.loans.Tables(visit) }

// State is where the loan, the push or the copies of a Ref stand.
func (o *Owner) State(_ *flow.Rooms, ref kernel.Ref) uint16 {
	if x := o.copyings.rows.Get(ref.Subject); ref.Kind == kindCopy && x != nil {
		is := uint16(copyRunning)
		if x.code != effects.OK || x.whole == 0 {
			is = copyStopping
		}
		return loan.States + uint16(pushPhases) + is
	}
	if x := o.pushes.rows.Get(ref.Subject); ref.Kind == kindPush && x != nil {
		return loan.States + uint16(x.phase)
	}
	return o.loans.State(ref)
}

// OwnerStates is how many there are.
const OwnerStates = loan.States + int(pushPhases) + copyStates

// OwnerStateNames are the names of its states.
func OwnerStateNames() []string {
	return []string{
		"loan over", "loan leased", "loan revoked", "push linking", "push linked", "push writing", "push settling",
		"copy running", "copy stopping",
	}
}

var _ flow.Flow = (*Owner)(nil)
