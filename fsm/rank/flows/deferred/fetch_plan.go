package deferred

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/memory/staging"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
)

// This file finds the chunks of a fetch.

// allKnown reports whether each chunk may be here or in an offer. The look-up continues at the chunk that was
// missing last time; the chunks before are looked up again once the last chunk is known.
func (x *Fetches) allKnown(v *env.Env, s *store.Store, d *Offers, f *fetch) bool {
	first := f.missingIndex
	for ; f.missingIndex < len(f.keyEnds); f.missingIndex++ {
		e := f.findEntry(s, f.missingIndex)
		if _, ok := s.ReadyPage(e); !ok && d.FindLocation(v, s, e, f.request) == 0 {
			v.Work.SpendLooks(f.missingIndex - first)
			return false
		}
	}
	return true
}

// lacksLink reports whether a fetch that was resolved before still lacks the link to one of its chunks. As known
// does, lacksLink continues at the chunk that lacked a link last time; otherwise all chunks would be looked up
// again at each event.
func (x *Fetches) lacksLink(v *env.Env, s *store.Store, d *Offers, l *link.Links, f *fetch) bool {
	if f.unlinkedIndex == 0 {
		return false
	}
	for ; f.unlinkedIndex <= len(f.keyEnds); f.unlinkedIndex++ {
		e := f.findEntry(s, f.unlinkedIndex-1)
		if _, ok := s.ReadyPage(e); ok {
			continue
		}
		at := d.FindLocation(v, s, e, f.request)
		if at == 0 {
			f.missingIndex = f.unlinkedIndex - 1
			return true
		}
		if offer, _ := s.OfferOf(at); d.get(offer).readLink(v, l) == 0 {
			return true
		}
	}
	f.unlinkedIndex = 0
	return false
}

// makePlan makes the plan of where to read each chunk, in x.plan, and reports whether all chunks can be had now.
func (x *Fetches) makePlan(v *env.Env, s *store.Store, d *Offers, l *link.Links, f *fetch) bool {
	p := &x.plan
	*p = staging.Fetch{Ticket: f.ticket, Deadline: f.deadline, Items: p.Items[:0], Sources: p.Sources[:0]}
	f.offered = f.offered[:0]
	x.planCount++
	all := true
	for i := range f.keyEnds {
		e := f.findEntry(s, i)
		f.offered = d.appendOffered(s, f.request, e, f.offered)
		if page, ok := s.ReadyPage(e); ok {
			p.Items = append(p.Items, staging.Item{Local: page, Pin: e})
			continue
		}
		at := d.FindLocation(v, s, e, f.request)
		if at == 0 {
			f.missingIndex = i
			return false
		}
		offer, item := s.OfferOf(at)
		o := d.get(offer)
		to := o.readLink(v, l)
		if to == 0 {
			if all = false; f.unlinkedIndex == 0 { // The links to all senders are requested at once.
				f.unlinkedIndex = i + 1
			}
			continue
		}
		if o.lastPlan.plan != x.planCount {
			o.lastPlan = planUse{plan: x.planCount, source: uint32(len(p.Sources))}
			p.Sources = append(p.Sources, staging.Source{
				ID: offer, Name: o.senderName(v), Link: to, Peer: o.Peer, Grant: effects.GrantID(o.Grant), Since: o.Since,
			})
		}
		p.Items = append(p.Items, staging.Item{
			Source: o.lastPlan.source, Remote: o.items[item].remote, Length: o.items[item].length,
		})
		if o.Request == 0 {
			f.offered = append(f.offered, offeredChunk{offer, item})
		}
	}
	return all
}

// GiveUpChunks has the effect, on the given chunks of a request, of a fetch that begins and fails: the request's
// claims on chunks that are here end, and chunks that were offered for the request leave their offers.
func (x *Fetches) GiveUpChunks(v *env.Env, s *store.Store, d *Offers, c *engine.GiveUp) {
	request := s.HashRequest(c.Request)
	var offered []offeredChunk
	for _, key := range c.Keys {
		e := s.Find(s.HashIn(c.Realm, key), key)
		offered = d.appendOffered(s, request, e, offered)
		if _, ready := s.ReadyPage(e); ready {
			s.PinEntry(e, request, v)
			s.UnpinEntry(e, v)
		}
	}
	for _, x := range offered {
		d.removeChunk(v, s, x.offer, x.item, effects.Cancelled)
	}
}
