package directory

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/directory/index"
	"github.com/kvferry/kvferry/fsm/prng"
	"github.com/kvferry/kvferry/fsm/table"
)

// A Directory is told facts, each at the instant at which it was taken up, and asked. Whoever tells it calls Advance
// once in each step, and again when Deadline has passed.
type Directory struct {
	config Config `snap:"share"`
	now    effects.Time

	known  roster
	feeds  table.Slab[feed]
	syncs  syncs
	fades  fades
	chunks index.Index
	owners []table.Handle // feeds, by holder

	turn   uint64       // lookups that were answered
	read   effects.Time // until when all was heard that other directories tell
	looked int32        // the slot of a worker, of which it was asked last whether it is wanted
	hits   []index.Hit  `snap:"scratch"`
	notes  []Note       `snap:"skip"`
}

// New returns a directory that knows nobody. The configuration must pass its Check.
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

// Advance ends what has no time left, and sweeps. What a step does not get done waits for the next one, and makes the
// deadline be now.
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

// Deadline is when Advance has something to do again; ok is false when only facts can bring it.
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

// silent is the worker that was heard longest ago, and when it has been silent for too long.
func (d *Directory) silent() (table.Handle, effects.Time, bool) {
	h, at, ok := d.known.heard()
	return h, at.Add(d.config.Silence), ok && d.config.Silence > 0
}

// parted is the worker that has had no connection for longest, and when that was for too long.
func (d *Directory) parted() (table.Handle, effects.Time, bool) {
	h, at, ok := d.known.conns.parted()
	return h, at.Add(d.config.Parted), ok && d.config.Parted > 0
}

// promised is the worker that was asked for a full sync longest ago and has begun none, and when its place is free for
// another one.
func (d *Directory) promised() (table.Handle, effects.Time, bool) {
	h, at, ok := d.syncs.promised()
	return h, at.Add(d.config.Patience), ok
}

// stuck is the sync that went on longest ago, and when it is given up.
func (d *Directory) stuck() (table.Handle, effects.Time, bool) {
	h, at, ok := d.syncs.went()
	return h, at.Add(d.config.Patience), ok
}
