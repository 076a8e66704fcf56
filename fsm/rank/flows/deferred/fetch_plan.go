package deferred

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/memory/staging"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
)

// This file finds the chunks of a fetch.

// known reports whether each chunk may be here or in an offer. The look-up continues at the chunk that was
// missing last time; the chunks before are looked up again once the last chunk is known.
func (x *Fetches) known(v *env.Env, s *store.Store, d *Deferred, f *fetch) bool {
	was := f.from
	for ; f.from < len(f.ends); f.from++ {
		e := s.Find(s.Hash(f.key(f.from)), f.key(f.from))
		if _, ok := s.Ready(e); !ok && d.Location(v, s, e, f.request) == 0 {
			v.Work.Looks(f.from - was)
			return false
		}
	}
	return true
}

// outOfReach reports whether a fetch that was resolved before still lacks the link to one of its chunks. As known
// does, outOfReach continues at the chunk that lacked a link last time; otherwise all chunks would be looked up
// again at each event.
func (x *Fetches) outOfReach(v *env.Env, s *store.Store, d *Deferred, l *link.Links, f *fetch) bool {
	if f.stuck == 0 {
		return false
	}
	for ; f.stuck <= len(f.ends); f.stuck++ {
		key := f.key(f.stuck - 1)
		e := s.Find(s.Hash(key), key)
		if _, ok := s.Ready(e); ok {
			continue
		}
		at := d.Location(v, s, e, f.request)
		if at == 0 {
			f.from = f.stuck - 1
			return true
		}
		if offer, _ := s.Offered(at); d.get(offer).way(v, l) == 0 {
			return true
		}
	}
	f.stuck = 0
	return false
}

// resolve makes the plan of where to read each chunk, in x.plan, and reports whether all chunks can be had now.
func (x *Fetches) resolve(v *env.Env, s *store.Store, d *Deferred, l *link.Links, f *fetch) bool {
	p := &x.plan
	*p = staging.Fetch{Ticket: f.ticket, Deadline: f.deadline, Items: p.Items[:0], Sources: p.Sources[:0]}
	f.takes = f.takes[:0]
	x.resolved++
	all := true
	for i := range f.ends {
		key := f.key(i)
		e := s.Find(s.Hash(key), key)
		f.takes = d.offeredFor(s, f.request, e, f.takes)
		if page, ok := s.Ready(e); ok {
			p.Items = append(p.Items, staging.Item{Local: page, Pin: e})
			continue
		}
		at := d.Location(v, s, e, f.request)
		if at == 0 {
			f.from = i
			return false
		}
		offer, item := s.Offered(at)
		o := d.get(offer)
		to := o.way(v, l)
		if to == 0 {
			if all = false; f.stuck == 0 { // The links to all senders are requested at once.
				f.stuck = i + 1
			}
			continue
		}
		if o.looked.plan != x.resolved {
			o.looked = looked{plan: x.resolved, source: uint32(len(p.Sources))}
			p.Sources = append(p.Sources, staging.Source{
				ID: offer, Name: o.name(v), Link: to, Peer: o.Peer, Grant: effects.GrantID(o.Grant), Since: o.Since,
			})
		}
		p.Items = append(p.Items, staging.Item{
			Source: o.looked.source, Remote: o.items[item].remote, Length: o.items[item].length,
		})
		if o.Request == 0 {
			f.takes = append(f.takes, taken{offer, item})
		}
	}
	return all
}

// GiveUpFor has the effect, on the given chunks of a request, of a fetch that begins and fails: the request's
// claims on chunks that are here end, and chunks that were offered for the request leave their offers.
func (x *Fetches) GiveUpFor(v *env.Env, s *store.Store, d *Deferred, request uint64, keys [][]byte) {
	var takes []taken
	for _, key := range keys {
		e := s.Find(s.Hash(key), key)
		takes = d.offeredFor(s, request, e, takes)
		if _, ready := s.Ready(e); ready {
			s.Pin(e, request, v)
			s.Unpin(e, v)
		}
	}
	for _, x := range takes {
		d.leave(v, s, x.offer, x.item, effects.Cancelled)
	}
}
