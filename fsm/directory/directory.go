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

	roster roster
	feeds  table.Slab[feed]
	syncs  syncs
	fades  fades
	chunks index.Index
	// feedByHolder maps each holder of the index to the feed whose chunks it has.
	feedByHolder []table.Handle

	turn         uint64       // number of lookups answered so far
	logReadUntil effects.Time // the reports of other directories have been read up to this instant
	lastExamined int32        // worker slot that CollectWanted examined last
	hits         []index.Hit  `snap:"scratch"`
	notes        []Note       `snap:"skip"`
}

// New returns an empty directory. The configuration must pass its Check.
func New(c Config) Directory {
	secret := prng.New(c.Seed)
	return Directory{
		config: c, roster: newRoster(&c, secret.Next()), feeds: table.NewSlab[feed](c.Holders), syncs: newSyncs(&c),
		fades: fades{rows: table.NewSlab[fade](c.Holders)},
		chunks: index.New(index.Limits{
			Chunks: c.Chunks, Holders: c.Holders, Groups: c.maxOrigins(), HoldersPerChunk: c.HoldersPerChunk,
		}, secret.Next()),
	}
}

// Advance sets the current instant, ends everything that has run out of time (silent and disconnected workers, unused
// sync slots, stalled syncs, fades), at most [Config.EndsPerStep] of each kind, and sweeps the index. Work that exceeds
// the limits of one step is left for the next step, and Deadline then returns the current instant.
func (d *Directory) Advance(now effects.Time) {
	d.now = now
	for range d.config.EndsPerStep {
		h, at, ok := d.nextSilent()
		if !ok || at > now {
			break
		}
		d.dropWorker(h, WorkerSilent)
	}
	for range d.config.EndsPerStep {
		h, at, ok := d.nextDisconnected()
		if !ok || at > now {
			break
		}
		d.dropWorker(h, WorkerDisconnected)
	}
	for range d.config.EndsPerStep {
		h := d.Replication().nextSilent()
		if h == 0 {
			break
		}
		d.dropWorker(h, WorkerSilent)
	}
	for range d.config.EndsPerStep {
		h, at, ok := d.nextReservation()
		if !ok || at > now {
			break
		}
		d.syncs.releaseSlot(d.roster.workers.Get(h))
	}
	for range d.config.EndsPerStep {
		h, at, ok := d.nextStuckSync()
		if !ok || at > now {
			break
		}
		d.giveUpSync(h)
	}
	for range d.config.EndsPerStep {
		h, at, ok := fader{d}.oldestFade()
		if !ok || at > now {
			break
		}
		fader{d}.completeFade(h)
	}
	d.chunks.Sweep(d.config.SweepRows)
}

// Deadline returns the instant at which Advance has work to do; ok is false if nothing is scheduled, so that only a
// new fact can create work.
func (d *Directory) Deadline() (at effects.Time, ok bool) {
	if d.Replication().nextSilent() != 0 || d.chunks.HasRetired() {
		return d.now, true
	}
	_, at, ok = d.nextSilent()
	if _, parted, found := d.nextDisconnected(); found && (!ok || parted < at) {
		at, ok = parted, true
	}
	if _, promised, found := d.nextReservation(); found && (!ok || promised < at) {
		at, ok = promised, true
	}
	if _, sync, found := d.nextStuckSync(); found && (!ok || sync < at) {
		at, ok = sync, true
	}
	if _, fade, found := (fader{d}).oldestFade(); found && (!ok || fade < at) {
		at, ok = fade, true
	}
	return at, ok
}

// nextSilent returns the worker that has not been heard from for the longest time, and the instant at which
// [Config.Silence] is over for this worker; ok is false if there is none.
func (d *Directory) nextSilent() (table.Handle, effects.Time, bool) {
	h, at, ok := d.roster.longestUnheard()
	return h, at.Add(d.config.Silence), ok && d.config.Silence > 0
}

// nextDisconnected returns the worker that has been without a connection for the longest time, and the instant at which
// [Config.Disconnected] is over for this worker; ok is false if there is none.
func (d *Directory) nextDisconnected() (table.Handle, effects.Time, bool) {
	h, at, ok := d.roster.conns.longestDisconnected()
	return h, at.Add(d.config.Disconnected), ok && d.config.Disconnected > 0
}

// nextReservation returns the worker that holds a sync slot without having begun a sync for the longest time, and the
// instant at which the slot is taken back.
func (d *Directory) nextReservation() (table.Handle, effects.Time, bool) {
	h, at, ok := d.syncs.oldestReservation()
	return h, at.Add(d.config.SyncTimeout), ok
}

// nextStuckSync returns the sync with the oldest last progress, and the instant at which the sync is given up.
func (d *Directory) nextStuckSync() (table.Handle, effects.Time, bool) {
	h, at, ok := d.syncs.oldestProgress()
	return h, at.Add(d.config.SyncTimeout), ok
}
