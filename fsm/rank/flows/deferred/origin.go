package deferred

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/table"
)

// An Origin is the origin of chunks that this rank requested from a peer, in contrast to an offer. The chunks are
// read only over the link over which they were requested. The zero Origin means that the sender offered the
// chunks.
type Origin struct {
	Peer      table.Handle // the outbound peer
	Name      string       // the peer's name for logs
	Link      effects.Link
	Requester table.Handle // the row of the requester, which is notified of the end
}

// CondemnRequested condemns the kept prefix h if it was requested over another link than current, and reports whether
// it did. The prefix may have ended in this very step, before its requester was notified; then CondemnRequested returns
// false.
func (d *Offers) CondemnRequested(h table.Handle, current effects.Link, code effects.Code) bool {
	o := d.rows.Get(h)
	if o == nil || o.Origin.Link == current {
		return false
	}
	d.CondemnOffer(h, code)
	return true
}

// HasChunkFor reports whether a chunk is kept for the given request.
func (d *Offers) HasChunkFor(v *env.Env, s *store.Store, e store.Entry, request uint64) bool {
	at := d.FindLocation(v, s, e, request)
	if at == 0 {
		return false
	}
	offer, _ := s.OfferOf(at)
	return d.rows.Get(offer).Request == request
}

// readLink returns the link over which an offer is read now, or zero if there is none. A link to the sender of an
// offer is requested by the call.
func (o *Offer) readLink(v *env.Env, l *link.Links) effects.Link {
	if o.Origin.Peer == 0 {
		return l.ReachPeer(v, o.Class)
	}
	if now, _ := l.IncarnationOf(o.Origin.Peer).Link(); now != o.Origin.Link {
		return 0
	}
	return o.Origin.Link
}

// senderName returns the name of the sender, for logs.
func (o *Offer) senderName(v *env.Env) string {
	if o.Origin.Peer != 0 {
		return o.Origin.Name
	}
	return v.PeerName(o.Class)
}
