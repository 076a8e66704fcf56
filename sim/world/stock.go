package world

import (
	"github.com/kvferry/kvferry/effects"
)

// stock holds the memory of the objects of a run. No memory is given back before the run is over, so that every
// remaining pointer refers to valid state.
type stock struct {
	conns     Arena[Conn]
	Links     Arena[Link]
	transfers Arena[Transfer]
	grants    Arena[Grant]
	copies    Arena[Copy]
	moves     Arena[effects.CopyPair]
	pools     Arena[Pool]
	pages     Arena[Page]

	Spans Arena[effects.Page]
	pairs Arena[effects.Pair]
	Flags Arena[bool]
	ints  Arena[int]
	Bytes Arena[byte]
}

// reset takes back all memory.
func (s *stock) reset() {
	s.conns.Reset()
	s.Links.Reset()
	s.transfers.Reset()
	s.grants.Reset()
	s.copies.Reset()
	s.moves.Reset()
	s.pools.Reset()
	s.pages.Reset()
	s.Spans.Reset()
	s.pairs.Reset()
	s.Flags.Reset()
	s.ints.Reset()
	s.Bytes.Reset()
}

// Retire empties a world that was run to its end and keeps its memory.
func (w *World) Retire() {
	w.Stock.reset()
	w.Queue.reset()
	*w = World{
		Stock: w.Stock, Queue: w.Queue, Nodes: w.Nodes[:0], bodies: w.bodies, Buffers: w.Buffers,
		Conns: w.Conns[:0], Requests: w.Requests[:0], Links: w.Links[:0], Transfers: w.Transfers[:0],
		Copies: w.Copies[:0], Going: w.Going.emptied(), Overheard: w.Overheard[:0],
	}
}

// addNode adds a node. addNode uses the memory of a node of an earlier run if there is one.
func (w *World) addNode() *Node {
	if len(w.Nodes) == cap(w.Nodes) || w.Nodes[:len(w.Nodes)+1][len(w.Nodes)] == nil {
		w.Nodes = append(w.Nodes, &Node{})
		return w.Nodes[len(w.Nodes)-1]
	}
	w.Nodes = w.Nodes[:len(w.Nodes)+1]
	n := w.Nodes[len(w.Nodes)-1]
	*n = Node{Machine: n.Machine, Out: n.Out, events: scratch{pages: n.events.pages}, Links: n.Links, Missed: n.Missed[:0],
		Backlog: n.Backlog, thawed: n.thawed,
		Grants: n.Grants, Keys: n.Keys, opened: n.opened}
	return n
}

// Emptied returns the same map without its entries, or a new map if m is nil.
func Emptied[K comparable, V any](m map[K]V) map[K]V {
	if m == nil {
		return map[K]V{}
	}
	clear(m)
	return m
}
