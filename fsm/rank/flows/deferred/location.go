package deferred

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/fsm/table"
)

// offeredFor adds the locations of a chunk that leave with a fetch of this request: all that it has in offers for it,
// wherever the chunk is read. Nobody would come for the others.
func (d *Deferred) offeredFor(s *store.Store, request uint64, e store.Entry, takes []taken) []taken {
	for at := s.FirstLocation(e); at != 0; at = s.NextLocation(at) {
		offer, item := s.Offered(at)
		if is := d.rows.Get(offer).Request; is != 0 && is == request {
			takes = append(takes, taken{offer, item})
		}
	}
	return takes
}

// amongMost is how many offers of a chunk are compared.
const amongMost = 16

// Location chooses where to read a chunk: what was offered for this request, else what stands longest. To read
// what is another's takes nothing from it. An offer whose lease is over is none, though that is its deadline and may
// be handled only later in this step; nor is one that is condemned, though the sweep has yet to come to it. It chooses
// among the first that may be read: there may be as many offers of one chunk as there are offers.
func (d *Deferred) Location(v *env.Env, s *store.Store, e store.Entry, request uint64) (best store.Location) {
	longest, good := v.Now, 0
	for at := s.FirstLocation(e); at != 0 && good < amongMost; at = s.NextLocation(at) {
		offer, _ := s.Offered(at)
		o := d.rows.Get(offer)
		if o.Until <= v.Now || d.Lost(o) {
			v.Work.Look()
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

// Extend prolongs an offer.
func (d *Deferred) Extend(v *env.Env, h table.Handle, until effects.Time) {
	o := d.rows.Get(h)
	o.Until = max(o.Until, until)
	d.Watch(v, h, o.renews)
}

// NotAfter is until when an offer may be read: for the reads of its fetches.
func (d *Deferred) NotAfter(h table.Handle) effects.Time { return d.rows.Get(h).Until }
