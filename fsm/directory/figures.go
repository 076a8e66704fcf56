package directory

import "github.com/kvferry/kvferry/fsm/directory/index"

// Figures are what a directory has now.
type Figures struct {
	Instances int
	Workers   int
	Locations int
	Syncs     int
	index.Figures
}

// Knows reports whether the directory knows any worker.
func (d *Directory) Knows() bool { return d.known.workers.Len() > 0 }

// Figures counts.
func (d *Directory) Figures() Figures {
	return Figures{
		Instances: d.known.instances.Len(), Workers: d.known.workers.Len(), Locations: d.feeds.Len(),
		Syncs:   d.syncs.rows.Len(),
		Figures: d.chunks.Figures(),
	}
}

// Has is how many chunks the worker of a name has at a location, and a sum of them that is the same in every directory
// that knows the same; ok is false if it is not known.
func (d *Directory) Has(s Sender, location []byte) (chunks int, sum uint64, ok bool) {
	if h := d.known.find(&s); h != 0 {
		if f := d.location(d.known.workers.Get(h), location); f != 0 {
			chunks, sum = d.chunks.Has(d.feeds.Get(f).holder)
			return chunks, sum, true
		}
	}
	return 0, 0, false
}
