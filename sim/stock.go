package sim

import (
	"sync"

	"github.com/kvferry/kvferry/effects"
	ops "github.com/kvferry/kvferry/fsm/engine"
	"github.com/kvferry/kvferry/fsm/receiver"
)

// worlds are of runs that are over, empty again but for their memory: the next run on that
// core has no need to make its own. Machines are made anew for every life, as in reality.
var worlds = sync.Pool{New: func() any { return &world{} }}

// stock is the memory of what comes and goes in a world and is not needed after it. Nothing
// of it is given back before the run is over: whoever still points there sees the truth.
type stock struct {
	conns     arena[conn]
	links     arena[link]
	transfers arena[transfer]
	grants    arena[grant]
	offloads  arena[offload]
	moves     arena[effects.CopyPair]
	pools     arena[pool]
	pages     arena[page]

	spans arena[effects.Page]
	pairs arena[effects.Pair]
	flags arena[bool]
	ints  arena[int]
	bytes arena[byte]

	reserves arena[ops.Reserve]
	puts     arena[ops.Put]
	releases arena[ops.Release]
	gets     arena[receiver.Get]
	contains arena[receiver.Contains]
	fetches  arena[receiver.Fetch]
	unpins   arena[receiver.Release]
}

func (s *stock) reset() {
	s.conns.reset()
	s.links.reset()
	s.transfers.reset()
	s.grants.reset()
	s.offloads.reset()
	s.moves.reset()
	s.pools.reset()
	s.pages.reset()
	s.spans.reset()
	s.pairs.reset()
	s.flags.reset()
	s.ints.reset()
	s.bytes.reset()
	s.reserves.reset()
	s.puts.reset()
	s.releases.reset()
	s.gets.reset()
	s.contains.reset()
	s.fetches.reset()
	s.unpins.reset()
}

// retire empties a world that was run to its end and keeps it for another run. One that
// failed is left alone: its invariants may be what broke.
func (w *world) retire() {
	w.stock.reset()
	w.queue.reset()
	*w = world{
		stock: w.stock, queue: w.queue, oracles: w.oracles, nodes: w.nodes[:0], spareBody: w.spareBody,
		conns: w.conns[:0], requests: w.requests[:0], links: w.links[:0], transfers: w.transfers[:0], offloads: w.offloads[:0],
		jobs: w.jobs[:0], commands: w.commands[:0], going: w.going.emptied(), plainWrites: w.plainWrites[:0],
		overheard: w.overheard[:0], rewritten: w.rewritten[:0],
	}
	worlds.Put(w)
}

// addNode adds a node, in the memory of one of an earlier run if there is one.
func (w *world) addNode() *node {
	if len(w.nodes) == cap(w.nodes) || w.nodes[:len(w.nodes)+1][len(w.nodes)] == nil {
		w.nodes = append(w.nodes, &node{})
		return w.nodes[len(w.nodes)-1]
	}
	w.nodes = w.nodes[:len(w.nodes)+1]
	n := w.nodes[len(w.nodes)-1]
	*n = node{out: n.out, events: scratch{pages: n.events.pages}, links: n.links, missed: n.missed[:0], backlog: n.backlog, thawed: n.thawed,
		grants: n.grants, keys: n.keys, opened: n.opened}
	return n
}

// addJob adds a job without chunks, likewise.
func (w *world) addJob() *job {
	if len(w.jobs) == cap(w.jobs) {
		w.jobs = append(w.jobs, job{})
		return &w.jobs[len(w.jobs)-1]
	}
	w.jobs = w.jobs[:len(w.jobs)+1]
	j := &w.jobs[len(w.jobs)-1]
	*j = job{name: j.name[:0], batches: j.batches[:0], keys: j.keys[:0], ids: j.ids[:0]}
	return j
}

// emptied is the same map without its entries.
func emptied[K comparable, V any](m map[K]V) map[K]V {
	if m == nil {
		return map[K]V{}
	}
	clear(m)
	return m
}
