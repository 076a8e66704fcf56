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

// Knows reports whether the directory knows any worker.
func (d *Directory) Knows() bool { return d.known.workers.Len() > 0 }

// Figures returns the current counts.
func (d *Directory) Figures() Figures {
	return Figures{
		Instances: d.known.instances.Len(), Workers: d.known.workers.Len(), Locations: d.feeds.Len(),
		Syncs:   d.syncs.rows.Len(),
		Figures: d.chunks.Figures(),
	}
}

// Has returns the number of chunks that a worker has at a location, and a checksum of the chunks that is equal in all
// directories with the same records; ok is false if the location is unknown.
func (d *Directory) Has(s Sender, location []byte) (chunks int, sum uint64, ok bool) {
	if h := d.known.find(&s); h != 0 {
		if f := d.location(d.known.workers.Get(h), location); f != 0 {
			chunks, sum = d.chunks.Has(d.feeds.Get(f).holder)
			return chunks, sum, true
		}
	}
	return 0, 0, false
}
