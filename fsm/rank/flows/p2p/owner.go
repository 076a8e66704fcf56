package p2p

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/peers/loan"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// An Owner answers lookups of peers: it finds the longest prefix of the requested chunks and lends it in the same
// step.
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

// OwnerConfig configures an Owner, in addition to the configuration of all flows.
type OwnerConfig struct {
	Settings
	// DoneURL is the address at which done messages are accepted besides the lookup socket.
	DoneURL []byte
	Loans   loan.Config
}

// Kinds of the Refs of an Owner.
const (
	// The end of a loan's time, and the proof that nobody reads under it.
	kindLoan uint8 = iota + 1
	// A write, and the deadline for its link.
	kindPush
	// A copy, with its index as the attempt, and the deadline for all copies of a request.
	kindCopy
)

// Emptied returns an Owner without loans, and reuses the memory of o. The old o must not be used any more.
func (o *Owner) Emptied(cfg OwnerConfig, classes int) Owner {
	cfg.PushesMax = min(cfg.PushesMax, cfg.LoansMax)
	cfg.Loans.Owner, cfg.Loans.Kind = kernel.OwnerP2POwner, kindLoan
	return Owner{
		cfg: cfg, loans: o.loans.Emptied(cfg.Loans, classes),
		pushes: o.pushes.emptied(cfg.PushesMax, cfg.Loans.LoansMax, classes), get: o.get, reply: o.reply, done: o.done,
		copyings: copyings{rows: o.copyings.rows.Emptied(int(copiesOf(&cfg))), pairs: o.copyings.pairs},
	}
}

// copiesOf returns for how many requests chunks may be copied at a time.
func copiesOf(cfg *OwnerConfig) uint32 {
	if cfg.Loans.Arena == 0 {
		return 0
	}
	return cfg.PushesMax
}

// Loans returns the loans.
func (o *Owner) Loans() *loan.Loans { return &o.loans }

// Step handles the proof that nobody reads under a loan any more, and the completions of writes and copies.
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

// Due handles the end of a loan's time, and the deadlines of a link for a push and of copies.
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

// Serves reports that the owner receives lookups and done messages.
func (o *Owner) Serves(c effects.Channel) (protocol.Tag, bool) {
	return protocol.TagNone, c == effects.ChannelLookup || c == effects.ChannelPeerDone
}

// Receive handles a message on these channels.
func (o *Owner) Receive(e *flow.Env, x *effects.Received) { o.onReceived(e, x) }

// Reached handles the end of an attempt to make the link to a peer's pages.
func (o *Owner) Reached(_ *flow.Env, class int, code effects.Code) { o.reached(class, code) }

// Busy adds the number of loans of each class.
func (o *Owner) Busy(all []uint32) { o.loans.Busy(all) }

// Condemn marks the loans of a class as lost.
func (o *Owner) Condemn(class int) { o.loans.Lose(class) }

// LostAt revokes the loan in a slot if it is marked as lost.
func (o *Owner) LostAt(e *flow.Env, slot int32) kernel.Where { return o.loans.LostAt(&e.Env, slot) }

// Left returns the number of rows that a drain waits for. Each loan ends in time.
func (o *Owner) Left(*flow.Env) int { return o.loans.Len() }

// Tables reports the sizes of the tables.
func (o *Owner) Tables(visit table.Visit) { o.loans.Tables(visit) }

// State returns the state of the loan, push or copies of a Ref.
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

// OwnerStateNames returns the names of the states.
func OwnerStateNames() []string {
	return []string{
		"loan over", "loan leased", "loan revoked", "push linking", "push linked", "push writing", "push settling",
		"copy running", "copy stopping",
	}
}

var _ flow.Flow = (*Owner)(nil)
