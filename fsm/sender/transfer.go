package sender

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/kernel"
)

// A transfer is one batched write. While it runs, and after that until the plane says that it has settled, something
// may read the pages: they are not the engine's before.
type transfer struct {
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

// begin starts it; owner hears how it ends.
func (x *transfer) begin(v *env.Env, t effects.Transfer, owner kernel.Ref) {
	if x.state != transferNone {
		panic("BUG: a put has two transfers")
	}
	t.Corr = v.Corrs.Open(owner)
	*x = transfer{corr: t.Corr, link: t.Link, state: transferRuns}
	v.Out.Transfer(t)
}

// over says whether it runs, or ran last, over this link.
func (x *transfer) over(l effects.Link) bool { return x.link == l }

// cancel asks for its end, which comes as any other does.
func (x *transfer) cancel(v *env.Env) { v.Out.Cancel(x.corr) }

// done takes its end, and says whether nothing touches the pages any more. If not, settled is called later.
func (x *transfer) done(ev *effects.TransferDone) (settled bool) {
	if x.state != transferRuns {
		panic("BUG: a transfer ended that does not run")
	}
	x.state = transferUnsettled
	if ev.Settled {
		x.settled()
	}
	return ev.Settled
}

// settled takes the late word that nothing touches the pages any more.
func (x *transfer) settled() {
	if x.state != transferUnsettled {
		panic("BUG: a transfer settled that had not ended")
	}
	x.state = transferNone
}
