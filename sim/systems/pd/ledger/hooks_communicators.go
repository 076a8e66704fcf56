package ledger

import (
	"github.com/kvferry/kvferry/fsm/communicator"
	"github.com/kvferry/kvferry/sim/world"
)

// What becomes of epochs of communicators.

func (o *Oracles) OnEpochSubmit(n *world.Node, l *world.Link, t *world.Transfer, b world.CommBatch) {
	o.lease.submitting(n, t)
	o.comm.submits(l, t, b)
}
func (o *Oracles) OnEpochSaid(l *world.Link, s communicator.Say) { o.comm.said(l, s) }
func (o *Oracles) OnEpochPumped(l *world.Link)                   { o.comm.waits(l) }
func (o *Oracles) OnEpochEnd(l *world.Link, t *world.Transfer, p communicator.Post) {
	o.comm.ends(l, t, p)
}
func (o *Oracles) OnEpochSettled(l *world.Link, t *world.Transfer)    { o.comm.settles(l, t) }
func (o *Oracles) OnEpochsRevoked(n *world.Node, r *world.CommRevoke) { o.comm.revoked(n, r) }
func (o *Oracles) OnChannelClosed(l *world.Link)                      { o.comm.closes(l) }
