package directory

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/directory/index"
)

// Lookup appends to peers who has the first of these chunks, those with the most of them first: locations of workers of
// the same rank, of other instances, each instance once. Of those that have as many the one comes first that was first
// longest ago. Who asks need not be known. A miss appends nothing.
func (d *Directory) Lookup(now effects.Time, s Sender, hashes []uint64, peers []Peer) ([]Peer, effects.Code) {
	if code := d.config.sane(&s); code != effects.OK {
		return peers, code
	}
	code := effects.OK
	if len(hashes) > d.config.Prefix {
		hashes, code = hashes[:d.config.Prefix], effects.TooLarge
	}
	_, _ = d.asker(now, &s) // It is heard by that, if it is known.
	but := -1
	if in := d.known.instance(s.Instance); in != 0 {
		but = int(in.Slot())
	}
	d.hits = d.chunks.Prefix(uint32(s.Worker), hashes, but, d.hits[:0])
	d.turn++
	for n := range d.config.Peers {
		best := d.best()
		if best == nil {
			break
		}
		f := d.feeds.Get(d.owners[best.Holder])
		w := d.known.workers.Get(f.worker)
		i := d.known.of(w)
		if i.chosen = d.turn; n == 0 {
			i.served = d.turn
		}
		peers = append(peers, Peer{Instance: i.name, Location: f.location, URL: w.url, Chunks: best.Chunks})
	}
	return peers, code
}

// Having appends the names of the instances of which a worker of that rank has a chunk, as far as is known; to look at
// only.
func (d *Directory) Having(worker uint32, hash uint64, names []string) []string {
	for _, hit := range d.chunks.Prefix(worker, []uint64{hash}, -1, nil) {
		w := d.known.workers.Get(d.feeds.Get(d.owners[hit.Holder]).worker)
		names = append(names, d.known.of(w).name)
	}
	return names
}

// best is the hit that answers next; nil: there is none. Nobody answers whom no peer can reach.
func (d *Directory) best() *index.Hit {
	var best *index.Hit
	served := uint64(0)
	for n := range d.hits {
		hit := &d.hits[n]
		w := d.known.workers.Get(d.feeds.Get(d.owners[hit.Holder]).worker)
		i := d.known.of(w)
		if w.url == "" || i.chosen == d.turn {
			continue
		}
		if best == nil || hit.Chunks > best.Chunks || hit.Chunks == best.Chunks && i.served < served {
			best, served = hit, i.served
		}
	}
	return best
}
