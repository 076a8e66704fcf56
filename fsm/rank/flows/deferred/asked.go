package deferred

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/table"
)

// An Asked is the origin of chunks that this rank requested from a peer, in contrast to an offer. The chunks are
// read only over the link over which they were requested. The zero Asked means that the sender offered the
// chunks.
type Asked struct {
	Of   table.Handle // the outbound peer
	Name string       // the peer's name for logs
	Over effects.Link
	By   table.Handle // the row of the requester, which is notified of the end
}

// LoseAsked condemns the kept prefix h if it was requested over another link than now, and reports whether it
// did. The prefix may have ended in this very step, before its requester was notified; then LoseAsked returns
// false.
func (d *Deferred) LoseAsked(h table.Handle, now effects.Link, code effects.Code) bool {
	o := d.rows.Get(h)
	if o == nil || o.Asked.Over == now {
		return false
	}
	d.Condemn(h, code)
	return true
}

// KeepsFor reports whether a chunk is kept for the given request.
func (d *Deferred) KeepsFor(v *env.Env, s *store.Store, e store.Entry, request uint64) bool {
	at := d.Location(v, s, e, request)
	if at == 0 {
		return false
	}
	offer, _ := s.Offered(at)
	return d.rows.Get(offer).Request == request
}

// way returns the link over which an offer is read now, or zero if there is none. A link to the sender of an
// offer is requested by the call.
func (o *Kept) way(v *env.Env, l *link.Links) effects.Link {
	if o.Asked.Of == 0 {
		return l.Reach(v, o.Class)
	}
	if now, _ := l.Of(o.Asked.Of).Link(); now != o.Asked.Over {
		return 0
	}
	return o.Asked.Over
}

// name returns the name of the sender, for logs.
func (o *Kept) name(v *env.Env) string {
	if o.Asked.Of != 0 {
		return o.Asked.Name
	}
	return v.Name(o.Class)
}
