package directory

import "github.com/kvferry/kvferry/fsm/directory/index"

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
