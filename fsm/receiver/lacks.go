package receiver

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
)

// lacks is what a request was short of: pages for the chunks that were not here. How many were not can be told
// later without looking at them again: no fewer than then, less those that became ready since.
type lacks struct {
	pages   uint32 // 0: something else
	readied uint64
	until   effects.Time // of an offer: from when on it is too late to read it
}

// endless is after every instant.
const endless = effects.Time(1<<63 - 1)

func (r *Receiver) lack(pages uint32, until effects.Time) {
	if r.unpromised { // Where there was no room to promise one that is ready, there may be now.
		return
	}
	r.lacks = lacks{pages: pages, readied: r.Store.Readied(), until: until}
}

// stillLacks says that a request that waits need not be looked at: what became free is not enough for it. Else
// each page that becomes free would have all of its keys looked up.
func (r *Receiver) stillLacks(v *env.Env, a *ask) bool {
	if !r.mayBegin(v, int(a.keys)) {
		return true
	}
	since := r.Store.Readied() - a.lacks.readied
	return uint64(a.lacks.pages) > since && v.Now <= a.lacks.until &&
		!v.Pools.Fits(v.Pool, a.class, a.lacks.pages-uint32(since))
}

// mayBegin says whether one more grant, and fills of so many keys, fit the tables.
func (r *Receiver) mayBegin(v *env.Env, keys int) bool {
	return v.Pools.Grants() < int(r.cfg.GrantsMax) && r.Store.Room(keys)
}
