package deferred

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/table"
)

// An Asked is where something is kept from that we asked a peer for: it was offered by nobody, and is read over the
// link that it was asked over or not at all. Zero: its sender offered it.
type Asked struct {
	Of   table.Handle // whom we call
	Name string       // that is told to people
	Over effects.Link
	By   table.Handle // who asked: he hears of its end
}

// LoseAsked condemns what is kept if it was asked for over another link than this, and says whether it was. It may have
// ended in this very step, and who asked not have heard.
func (d *Deferred) LoseAsked(h table.Handle, now effects.Link, code effects.Code) bool {
	o := d.rows.Get(h)
	if o == nil || o.Asked.Over == now {
		return false
	}
	d.Condemn(h, code)
	return true
}

// KeepsFor says whether a chunk is kept for this request.
func (d *Deferred) KeepsFor(v *env.Env, s *store.Store, e store.Entry, request uint64) bool {
	at := d.Location(v, s, e, request)
	if at == 0 {
		return false
	}
	offer, _ := s.Offered(at)
	return d.rows.Get(offer).Request == request
}

// way is the link over which an offer is read now; zero if there is none. One to a sender that offered it is made then.
func (o *Kept) way(v *env.Env, l *link.Links) effects.Link {
	if o.Asked.Of == 0 {
		return l.Reach(v, o.Class)
	}
	if now, _ := l.Of(o.Asked.Of).Link(); now != o.Asked.Over {
		return 0
	}
	return o.Asked.Over
}

// name is what its sender calls itself, for people.
func (o *Kept) name(v *env.Env) string {
	if o.Asked.Of != 0 {
		return o.Asked.Name
	}
	return v.Name(o.Class)
}
