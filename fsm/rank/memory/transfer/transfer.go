// Package transfer has what brings bytes from page to page: one batched transfer to a peer or from it, or a run of
// copies between two pools.
//
// A caller may rely on this: while either runs, its pages have in-flight references, so they are nobody else's; those
// go once nothing can touch the pages any more, and not before, however it ended; and each is told its end once. Whose
// the pages are then is for the owner to say.
package transfer

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
)

// A Transfer is one batch of pairs of pages. While it runs, and after that until the plane says that it has settled,
// something may touch the pages: they are nobody else's before.
type Transfer struct {
	corr  effects.Corr `snap:"skip"` // its state says whether there is one
	link  effects.Link
	state transferState
}

type transferState uint8

const (
	transferNone transferState = iota
	transferRuns
	transferUnsettled // it ended, but may go on
)

// Begin starts it; owner hears how it ends.
func (x *Transfer) Begin(v *env.Env, t effects.Transfer, owner kernel.Ref) {
	if x.state != transferNone {
		panic("BUG: a put has two transfers")
	}
	t.Corr = v.Corrs.Open(owner)
	*x = Transfer{corr: t.Corr, link: t.Link, state: transferRuns}
	v.Out.Transfer(t)
}

// Over says whether it runs, or ran last, over this link.
func (x *Transfer) Over(l effects.Link) bool { return x.link == l }

// Cancel asks for its end, which comes as any other does.
func (x *Transfer) Cancel(v *env.Env) { v.Out.Cancel(x.corr) }

// Done takes its end, and says whether nothing touches the pages any more. If not, Settled is called later.
func (x *Transfer) Done(ev *effects.TransferDone) (settled bool) {
	if x.state != transferRuns {
		panic("BUG: a transfer ended that does not run")
	}
	x.state = transferUnsettled
	if ev.Settled {
		x.Settled()
	}
	return ev.Settled
}

// Settled takes the late word that nothing touches the pages any more.
func (x *Transfer) Settled() {
	if x.state != transferUnsettled {
		panic("BUG: a transfer settled that had not ended")
	}
	x.state = transferNone
}
