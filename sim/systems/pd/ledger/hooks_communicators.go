package ledger

import (
	"github.com/kvferry/kvferry/fsm/communicator"
	"github.com/kvferry/kvferry/sim/world"
)

// What becomes of epochs of communicators.

func (o *OfEpochs) OnEpochSubmit(n *world.Node, l *world.Link, t *world.Transfer, b world.CommBatch) {
	o.lease.submitting(n, t)
	o.comm.submits(l, t, b)
	o.stuck.submits(n, l, t)
}
func (o *OfEpochs) OnEpochTold(n *world.Node, l *world.Link, ev *communicator.Event) {
	o.stuck.told(n, l, ev)
}
func (o *OfEpochs) OnEpochSaid(l *world.Link, s communicator.Say) { o.comm.said(l, s) }
func (o *OfEpochs) OnEpochPumped(l *world.Link)                   { o.comm.waits(l) }
func (o *OfEpochs) OnEpochEnd(l *world.Link, t *world.Transfer, p communicator.Post) {
	o.comm.ends(l, t, p)
	o.stuck.ends(l, t, p)
}
func (o *OfEpochs) OnEpochSettled(l *world.Link, t *world.Transfer)    { o.comm.settles(l, t) }
func (o *OfEpochs) OnEpochsRevoked(n *world.Node, r *world.CommRevoke) { o.comm.revoked(n, r) }
func (o *OfEpochs) OnChannelClosed(l *world.Link)                      { o.comm.closes(l) }
