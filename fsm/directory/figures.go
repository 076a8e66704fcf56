package directory

import (
	"github.com/kvferry/kvferry/fsm/directory/index"
	"github.com/kvferry/kvferry/fsm/table"
)

// Figures counts the current contents of a directory.
type Figures struct {
	Instances int
	Workers   int
	Locations int
	Syncs     int
	index.Figures
}

// HasWorkers reports whether the directory knows any worker.
func (d *Directory) HasWorkers() bool { return d.roster.workers.Len() > 0 }

// Figures returns the current counts.
func (d *Directory) Figures() Figures {
	return Figures{
		Instances: d.roster.instances.Len(), Workers: d.roster.workers.Len(), Locations: d.feeds.Len(),
		Syncs:   d.syncs.rows.Len(),
		Figures: d.chunks.Figures(),
	}
}

// CountChunks returns the number of chunks that a worker has at a location, and a checksum of the chunks that is equal
// in all directories with the same records; ok is false if the location is unknown.
func (d *Directory) CountChunks(s Sender, location []byte) (chunks int, sum uint64, ok bool) {
	if h := d.roster.findWorker(&s); h != 0 {
		if f := d.findFeed(d.roster.workers.Get(h), location); f != 0 {
			chunks, sum = d.chunks.CountChunks(d.feeds.Get(f).holder)
			return chunks, sum, true
		}
	}
	return 0, 0, false
}

// RecountShares counts again, from the rows, what each origin has of every table that the origins share. Tests and
// oracles compare this with the running counts.
func (d *Directory) RecountShares(r *table.Recount) {
	classOf := func(h table.Handle) int { return d.roster.workers.Get(h).shareClass() }
	table.RecountRows(r, "workers", &d.roster.origins.workerShare, &d.roster.workers, table.Bounded, func(w *worker) (class, count int) {
		return w.shareClass(), 1
	})
	table.RecountRows(r, "instances", &d.roster.origins.instanceShare, &d.roster.instances, table.Bounded,
		func(i *instance) (class, count int) { return int(i.origin.Slot()), 1 })
	for h := d.syncs.reservationOrder.Front(); h != 0; h = d.syncs.reservations.Next(h) {
		r.Add(classOf(d.syncs.reservations.Get(h).worker), 1)
	}
	table.RecountRows(r, "syncs", &d.syncs.share, &d.syncs.rows, table.Bounded, func(s *sync) (class, count int) {
		return classOf(d.feeds.Get(s.feed).worker), 1
	})
	d.chunks.RecountShares(r)
}
