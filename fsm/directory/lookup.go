package directory

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/directory/index"
)

// Lookup appends to peers the locations that have the first of these chunks, longest prefix first. Only locations of
// workers with the same rank as the requester, in instances different from the requester's, are considered, and each
// instance appears once. Among locations with equally many chunks, the instance that was returned first longest ago
// comes first, which spreads the load. The requester need not be known. A miss appends nothing. If there are too many
// hashes, Lookup uses the first [Config.HashesPerLookup] and returns TooLarge.
func (d *Directory) Lookup(now effects.Time, s Sender, hashes []uint64, peers []Peer) ([]Peer, effects.Code) {
	if code := d.config.checkSender(&s); code != effects.OK {
		return peers, code
	}
	code := effects.OK
	if len(hashes) > d.config.HashesPerLookup {
		hashes, code = hashes[:d.config.HashesPerLookup], effects.TooLarge
	}
	_, _ = d.findRequester(now, &s) // A lookup counts as a sign of life of a known worker.
	excluded := -1
	if in := d.roster.findInstance(s.Instance); in != 0 {
		excluded = int(in.Slot())
	}
	d.hits = d.chunks.FindPrefix(uint32(s.Worker), hashes, excluded, d.hits[:0])
	d.turn++
	for n := range d.config.PeersPerLookup {
		best := d.bestHit()
		if best == nil {
			break
		}
		f := d.feeds.Get(d.feedByHolder[best.Holder])
		w := d.roster.workers.Get(f.worker)
		i := d.roster.instanceOf(w)
		if i.chosenTurn = d.turn; n == 0 {
			i.servedTurn = d.turn
		}
		peers = append(peers, Peer{Instance: i.name, Location: f.location, URL: w.url, Chunks: best.Chunks})
	}
	return peers, code
}

// InstancesWith appends the names of the instances that have a chunk at a worker of that rank, as far as recorded.
// InstancesWith is for inspection and does not influence later answers.
func (d *Directory) InstancesWith(worker uint32, hash uint64, names []string) []string {
	for _, hit := range d.chunks.FindPrefix(worker, []uint64{hash}, -1, nil) {
		w := d.roster.workers.Get(d.feeds.Get(d.feedByHolder[hit.Holder]).worker)
		names = append(names, d.roster.instanceOf(w).name)
	}
	return names
}

// bestHit returns the hit to append next, or nil if there is none. Workers that peers cannot reach (without a URL) are
// skipped.
func (d *Directory) bestHit() *index.Hit {
	var best *index.Hit
	served := uint64(0)
	for n := range d.hits {
		hit := &d.hits[n]
		w := d.roster.workers.Get(d.feeds.Get(d.feedByHolder[hit.Holder]).worker)
		i := d.roster.instanceOf(w)
		if w.url == "" || i.chosenTurn == d.turn {
			continue
		}
		if best == nil || hit.Chunks > best.Chunks || hit.Chunks == best.Chunks && i.servedTurn < served {
			best, served = hit, i.servedTurn
		}
	}
	return best
}
