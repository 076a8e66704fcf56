package sim

import "github.com/kvferry/kvferry/fsm/communicator"

// What becomes of epochs of communicators.

func (o *oracles) onEpochSubmit(n *node, l *link, t *transfer, b commBatch) {
	o.lease.submitting(n, t)
	o.comm.submits(l, t, b)
}
func (o *oracles) onEpochSaid(l *link, s communicator.Say)              { o.comm.said(l, s) }
func (o *oracles) onEpochPumped(l *link)                                { o.comm.waits(l) }
func (o *oracles) onEpochEnd(l *link, t *transfer, p communicator.Post) { o.comm.ends(l, t, p) }
func (o *oracles) onEpochSettled(l *link, t *transfer)                  { o.comm.settles(l, t) }
func (o *oracles) onEpochsRevoked(n *node, r *commRevoke)               { o.comm.revoked(n, r) }
func (o *oracles) onChannelClosed(l *link)                              { o.comm.closes(l) }
