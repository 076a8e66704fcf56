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
	cfg    OwnerConfig `snap:"share"`
	loans  loan.Loans
	pushes pushTable
	copies copyTable

	getMessage  protocol.AscendBatchedLookupAndGetMsg     `snap:"scratch"`
	reply       protocol.AscendBatchedLookupAndGetRetMsg  `snap:"scratch"`
	doneMessage protocol.AscendBatchedLookupAndGetDoneMsg `snap:"scratch"`
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

// Recycle returns an Owner without loans, and reuses the memory of o. The old o must not be used any more.
func (o *Owner) Recycle(cfg OwnerConfig, classes int) Owner {
	cfg.PushesMax = min(cfg.PushesMax, cfg.LoansMax)
	cfg.Loans.Owner, cfg.Loans.Kind = kernel.OwnerP2POwner, kindLoan
	return Owner{
		cfg: cfg, loans: o.loans.Recycle(cfg.Loans, classes),
		pushes: o.pushes.recycle(cfg.PushesMax, cfg.Loans.LoansMax, classes), getMessage: o.getMessage, reply: o.reply,
		doneMessage: o.doneMessage,
		copies:      copyTable{rows: o.copies.rows.Recycle(int(copiesMax(&cfg))), pairs: o.copies.pairs},
	}
}

// copiesMax returns for how many requests chunks may be copied at a time.
func copiesMax(cfg *OwnerConfig) uint32 {
	if cfg.Loans.ArenaPages == 0 {
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
		o.onWriteDone(e, ref.Subject, x)
	case *effects.CopyDone:
		o.onCopyDone(e, ref, x.Code, x.Settled)
	case *effects.Settled:
		if ref.Kind == kindCopy {
			o.onCopySettled(e, ref)
			break
		}
		o.onWriteSettled(e, ref.Subject)
	case *effects.Revoked:
		o.loans.OnRevoked(&e.Env, &e.Store, ref)
	default:
		kernel.PanicUnexpected("the p2p owner")
	}
}

// OnTimer handles the end of a loan's time, and the deadlines of a link for a push and of copies.
func (o *Owner) OnTimer(e *flow.Env, ref kernel.Ref) {
	switch ref.Kind {
	case kindPush:
		o.onPushDeadline(e, ref.Subject)
	case kindCopy:
		o.onCopyDeadline(e, ref.Subject)
	default:
		o.loans.OnTimer(&e.Env, &e.Store, ref)
	}
}

// ServedTag reports that the owner receives lookups and done messages.
func (o *Owner) ServedTag(c effects.Channel) (protocol.Tag, bool) {
	return protocol.TagNone, c == effects.ChannelLookup || c == effects.ChannelPeerDone
}

// HandleMessage handles a message on these channels.
func (o *Owner) HandleMessage(e *flow.Env, x *effects.Received) { o.handleMessage(e, x) }

// OnReachOutcome handles the end of an attempt to make the link to a peer's pages.
func (o *Owner) OnReachOutcome(_ *flow.Env, class int, code effects.Code) {
	o.onReachOutcome(class, code)
}

// AddClassRows adds the number of loans of each class.
func (o *Owner) AddClassRows(all []uint32) { o.loans.AddClassRows(all) }

// CondemnClass marks the loans of a class as lost.
func (o *Owner) CondemnClass(class int) { o.loans.CondemnClass(class) }

// SweepLost revokes the loan in a slot if it is marked as lost.
func (o *Owner) SweepLost(e *flow.Env, slot int32) kernel.VisitResult {
	return o.loans.SweepLost(&e.Env, slot)
}

// CountUnfinished returns the number of rows that a drain waits for. Each loan ends in time.
func (o *Owner) CountUnfinished(*flow.Env) int { return o.loans.Len() }

// VisitTables reports the sizes of the tables.
func (o *Owner) VisitTables(visit table.VisitFunc) { o.loans.VisitTables(visit) }

// RowState returns the state of the loan, push or copies of a Ref.
func (o *Owner) RowState(_ *flow.Rooms, ref kernel.Ref) uint16 {
	if x := o.copies.rows.Get(ref.Subject); ref.Kind == kindCopy && x != nil {
		state := uint16(copyRunning)
		if x.code != effects.OK || x.intactCopies == 0 {
			state = copyStopping
		}
		return loan.StateCount + uint16(pushPhaseCount) + state
	}
	if x := o.pushes.rows.Get(ref.Subject); ref.Kind == kindPush && x != nil {
		return loan.StateCount + uint16(x.phase)
	}
	return o.loans.RowState(ref)
}

// OwnerStateNames returns the names of the states.
func OwnerStateNames() []string {
	return []string{
		"loan over", "loan leased", "loan revoked", "push linking", "push link tried", "push writing", "push settling",
		"copy running", "copy stopping",
	}
}

var _ flow.Flow = (*Owner)(nil)

// RecountShares counts the loans and the requests in service of each class again, and the replay records.
func (o *Owner) RecountShares(r *table.Recount) {
	o.loans.RecountShares(r)
	for slot := range o.copies.rows.Slots() {
		if x := o.copies.rows.Get(o.copies.rows.At(slot)); x != nil {
			r.Add(x.class, 1)
		}
	}
	table.RecountRows(r, "requests in service", &o.pushes.share, &o.pushes.rows, table.Empty, func(x *pushRow) (class, n int) {
		return x.class, 1
	})
	o.pushes.replays.RecountShares(r, "records of pushes")
}
