package directory

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/directory/index"
	"github.com/kvferry/kvferry/fsm/prng"
	"github.com/kvferry/kvferry/fsm/table"
)

// A Directory records facts that workers report and answers lookups. Each method takes the current instant. The
// caller calls Advance once in each step before reporting facts, and again when Deadline has passed.
type Directory struct {
	config Config `snap:"share"`
	now    effects.Time

	known  roster
	feeds  table.Slab[feed]
	syncs  syncs
	fades  fades
	chunks index.Index
	// owners maps each holder of the index to the feed whose chunks it has.
	owners []table.Handle

	turn   uint64       // number of lookups answered so far
	read   effects.Time // the reports of other directories have been read up to this instant
	looked int32        // worker slot that Wanted examined last
	hits   []index.Hit  `snap:"scratch"`
	notes  []Note       `snap:"skip"`
}

// New returns an empty directory. The configuration must pass its Check.
func New(c Config) Directory {
	secret := prng.New(c.Seed)
	return Directory{
		config: c, known: newRoster(&c, secret.Next()), feeds: table.NewSlab[feed](c.Holders), syncs: newSyncs(&c),
		fades: fades{rows: table.NewSlab[fade](c.Holders)},
		chunks: index.New(index.Limits{
			Chunks: c.Chunks, Holders: c.Holders, Groups: c.classes(), OfChunk: c.OfChunk,
		}, secret.Next()),
	}
}

// Advance sets the current instant, ends everything that has run out of time (silent and parted workers, unused sync
// slots, stalled syncs, fades), at most [Config.Ends] of each kind, and sweeps the index. Work that exceeds the
// limits of one step is left for the next step, and Deadline then returns the current instant.
func (d *Directory) Advance(now effects.Time) {
	d.now = now
	for range d.config.Ends {
		h, at, ok := d.silent()
		if !ok || at > now {
			break
		}
		d.drop(h, WentSilent)
	}
	for range d.config.Ends {
		h, at, ok := d.parted()
		if !ok || at > now {
			break
		}
		d.drop(h, Parted)
	}
	for range d.config.Ends {
		h := d.Others().silent()
		if h == 0 {
			break
		}
		d.drop(h, WentSilent)
	}
	for range d.config.Ends {
		h, at, ok := d.promised()
		if !ok || at > now {
			break
		}
		d.syncs.unask(d.known.workers.Get(h))
	}
	for range d.config.Ends {
		h, at, ok := d.stuck()
		if !ok || at > now {
			break
		}
		d.giveUp(h)
	}
	for range d.config.Ends {
		h, at, ok := age{d}.next()
		if !ok || at > now {
			break
		}
		age{d}.over(h)
	}
	d.chunks.Sweep(d.config.Sweep)
}

// Deadline returns the instant at which Advance has work to do; ok is false if nothing is scheduled, so that only a
// new fact can create work.
func (d *Directory) Deadline() (at effects.Time, ok bool) {
	if d.Others().silent() != 0 || d.chunks.Retired() {
		return d.now, true
	}
	_, at, ok = d.silent()
	if _, parted, is := d.parted(); is && (!ok || parted < at) {
		at, ok = parted, true
	}
	if _, promised, is := d.promised(); is && (!ok || promised < at) {
		at, ok = promised, true
	}
	if _, sync, is := d.stuck(); is && (!ok || sync < at) {
		at, ok = sync, true
	}
	if _, fade, is := (age{d}).next(); is && (!ok || fade < at) {
		at, ok = fade, true
	}
	return at, ok
}

// silent returns the worker that has not been heard from for the longest time, and the instant at which
// [Config.Silence] is over for this worker; ok is false if there is none.
func (d *Directory) silent() (table.Handle, effects.Time, bool) {
	h, at, ok := d.known.heard()
	return h, at.Add(d.config.Silence), ok && d.config.Silence > 0
}

// parted returns the worker that has been without a connection for the longest time, and the instant at which
// [Config.Parted] is over for this worker; ok is false if there is none.
func (d *Directory) parted() (table.Handle, effects.Time, bool) {
	h, at, ok := d.known.conns.parted()
	return h, at.Add(d.config.Parted), ok && d.config.Parted > 0
}

// promised returns the worker that holds a sync slot without having begun a sync for the longest time, and the
// instant at which the slot is taken back.
func (d *Directory) promised() (table.Handle, effects.Time, bool) {
	h, at, ok := d.syncs.promised()
	return h, at.Add(d.config.Patience), ok
}

// stuck returns the sync with the oldest last progress, and the instant at which the sync is given up.
func (d *Directory) stuck() (table.Handle, effects.Time, bool) {
	h, at, ok := d.syncs.went()
	return h, at.Add(d.config.Patience), ok
}
