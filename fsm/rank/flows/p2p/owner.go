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
	flow.Passive
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

// Step takes the proof that nobody reads under a loan any more, or what became of a write or a copy.
func (o *Owner) Step(e *flow.Env, ref kernel.Ref, ev effects.Event) {
	switch x := ev.(type) {
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

// Serves reports that the owner takes lookups and the ends of loans.
func (o *Owner) Serves(c effects.Channel) (protocol.Tag, bool) {
	return protocol.TagNone, c == effects.ChannelLookup || c == effects.ChannelPeerDone
}

// Receive takes such a message.
func (o *Owner) Receive(e *flow.Env, x *effects.Received) { o.onReceived(e, x) }

// Reached handles how an attempt to reach the pages of a peer ended.
func (o *Owner) Reached(_ *flow.Env, class int, code effects.Code) { o.reached(class, code) }

// Busy adds the loans of each class.
func (o *Owner) Busy(all []uint32) { o.loans.Busy(all) }

// Condemn marks the loans of a class as lost.
func (o *Owner) Condemn(class int) { o.loans.Lose(class) }

// LostAt takes the loan at a slot back if it is lost.
func (o *Owner) LostAt(e *flow.Env, slot int32) kernel.Where { return o.loans.LostAt(&e.Env, slot) }

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

// OwnerStateNames are the names of its states.
func OwnerStateNames() []string {
	return []string{
		"loan over", "loan leased", "loan revoked", "push linking", "push linked", "push writing", "push settling",
		"copy running", "copy stopping",
	}
}

var _ flow.Flow = (*Owner)(nil)
