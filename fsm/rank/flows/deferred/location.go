package deferred

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/fsm/table"
)

// appendOffered appends to takes the locations of a chunk that leave with a fetch of the given request: all
// locations in offers for that request, wherever the chunk is read. No later fetch would use them.
func (d *Offers) appendOffered(s *store.Store, request uint64, e store.Entry, list []offeredChunk) []offeredChunk {
	for at := s.FirstLocation(e); at != 0; at = s.NextLocation(at) {
		offer, item := s.OfferOf(at)
		if offerRequest := d.rows.Get(offer).Request; offerRequest != 0 && offerRequest == request {
			list = append(list, offeredChunk{offer, item})
		}
	}
	return list
}

// comparedMax is the largest number of readable offers of a chunk that Location compares.
const comparedMax = 16

// FindLocation returns where to read a chunk: from an offer for the given request if there is one, or else from the
// offer with the longest remaining lease. Reading from another request's offer does not use that offer up (M7).
// An offer with an expired lease is not considered, although its deadline may be handled later in this step; nor
// is a condemned offer, although the sweep may not have reached it yet. Location compares the first comparedMax
// readable offers only, because one chunk may be in as many offers as there are.
func (d *Offers) FindLocation(v *env.Env, s *store.Store, e store.Entry, request uint64) (best store.Location) {
	longest, good := v.Now, 0
	for at := s.FirstLocation(e); at != 0 && good < comparedMax; at = s.NextLocation(at) {
		offer, _ := s.OfferOf(at)
		o := d.rows.Get(offer)
		if o.Until <= v.Now || d.IsCondemned(o) {
			v.Work.SpendLook()
			continue
		}
		good++
		switch {
		case request != 0 && o.Request == request:
			return at
		case o.Until > longest:
			best, longest = at, o.Until
		}
	}
	return best
}

// ExtendOffer moves the time until which an offer may be read to until, but never to an earlier time, and sets the
// next deadline.
func (d *Offers) ExtendOffer(v *env.Env, h table.Handle, until effects.Time) {
	o := d.rows.Get(h)
	o.Until = max(o.Until, until)
	d.SetDeadline(v, h, o.renews)
}

// ReadDeadline returns the time until which an offer may be read, for the reads of its fetches.
func (d *Offers) ReadDeadline(h table.Handle) effects.Time { return d.rows.Get(h).Until }
