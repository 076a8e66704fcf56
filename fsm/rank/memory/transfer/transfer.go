// Package transfer tracks the work that moves bytes between pages: a batched [Transfer] to a peer or from a peer, and
// [Copies] between two pools of this rank.
//
// A caller may rely on the following:
//
//   - Copies hold in-flight references to their pages, so that the pages belong to nobody else (M1), and release these
//     references only when nothing can touch the pages any more, however a copy ended.
//   - A Transfer reports when nothing can touch its pages any more. Its owner has the pages referenced, leased or
//     granted, and must keep them so until that report.
//   - The end of each transfer and of each copy is reported once.
//
// The package does not decide what happens to the pages afterwards; the owner (a put, a fetch, a loan) does.
//
// Example: a put begins a transfer of two pages, and the time of the put runs out. The put cancels the transfer.
// TransferDone arrives with Settled false, because the hardware may still read the pages, so the put keeps the pages.
// Only when Settled arrives does the put release the pages.
package transfer

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
)

// A Transfer is one batch of pairs of pages that is moved over a link. Invariant: from Begin until the plane reports
// the transfer as settled, something may touch the pages, so they must not be used for anything else (M1).
type Transfer struct {
	corr  effects.Corr `snap:"skip"` // correlation id; snapshots have state instead
	link  effects.Link
	state transferState
}

// transferState is the progress of a transfer.
type transferState uint8

const (
	transferNone      transferState = iota // no transfer, or a settled one
	transferRunning                        // in flight
	transferUnsettled                      // the end was reported, but something may still touch the pages
)

// Begin submits the transfer. owner receives its completion. Begin panics if a transfer is in progress.
func (x *Transfer) Begin(v *env.Env, t effects.Transfer, owner kernel.Ref) {
	if x.state != transferNone {
		panic("BUG: a put has two transfers")
	}
	t.Corr = v.Corrs.Open(owner)
	*x = Transfer{corr: t.Corr, link: t.Link, state: transferRunning}
	v.Out.Transfer(t)
}

// UsesLink reports whether the current transfer, or the last one, uses this link.
func (x *Transfer) UsesLink(l effects.Link) bool { return x.link == l }

// Cancel asks the driver to end the transfer. The end is reported as usual.
func (x *Transfer) Cancel(v *env.Env) { v.Out.Cancel(x.corr) }

// OnDone handles the end of the transfer. OnDone reports whether nothing touches the pages any more. If it returns
// false, OnSettled is called later.
func (x *Transfer) OnDone(ev *effects.TransferDone) (settled bool) {
	if x.state != transferRunning {
		panic("BUG: a transfer ended that does not run")
	}
	x.state = transferUnsettled
	if ev.Settled {
		x.OnSettled()
	}
	return ev.Settled
}

// OnSettled handles the later report that nothing touches the pages any more.
func (x *Transfer) OnSettled() {
	if x.state != transferUnsettled {
		panic("BUG: a transfer settled that had not ended")
	}
	x.state = transferNone
}
