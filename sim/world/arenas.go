package world

import (
	"github.com/kvferry/kvferry/effects"
)

// arenas holds the memory of the objects of a run. No memory is given back before the run is over, so that every
// remaining pointer refers to valid state.
type arenas struct {
	conns     Arena[Conn]
	Links     Arena[Link]
	transfers Arena[Transfer]
	grants    Arena[Grant]
	copies    Arena[Copy]
	moves     Arena[effects.CopyPair]
	pools     Arena[Pool]
	pages     Arena[Page]

	EffectPages Arena[effects.Page]
	pairs       Arena[effects.Pair]
	Bools       Arena[bool]
	ints        Arena[int]
	Bytes       Arena[byte]
}

// resetArenas takes back all memory.
func (s *arenas) resetArenas() {
	s.conns.Reset()
	s.Links.Reset()
	s.transfers.Reset()
	s.grants.Reset()
	s.copies.Reset()
	s.moves.Reset()
	s.pools.Reset()
	s.pages.Reset()
	s.EffectPages.Reset()
	s.pairs.Reset()
	s.Bools.Reset()
	s.ints.Reset()
	s.Bytes.Reset()
}

// RecycleWorld empties a world that was run to its end and keeps its memory.
func (w *World) RecycleWorld() {
	w.Arenas.resetArenas()
	w.Queue.resetQueue()
	*w = World{
		Arenas: w.Arenas, Queue: w.Queue, Nodes: w.Nodes[:0], bodyPool: w.bodyPool, Buffers: w.Buffers,
		Conns: w.Conns[:0], Requests: w.Requests[:0], Links: w.Links[:0], Transfers: w.Transfers[:0],
		Copies: w.Copies[:0], verifications: w.verifications[:0], Active: w.Active.recycleLists(), Overheard: w.Overheard[:0],
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
	*n = Node{Machine: n.Machine, Out: n.Out, events: eventBuffers{pages: n.events.pages}, Links: n.Links, Missed: n.Missed[:0],
		Backlog: n.Backlog, spareBacklog: n.spareBacklog,
		Grants: n.Grants, Keys: n.Keys, connCounts: n.connCounts}
	return n
}

// RecycleMap returns the same map without its entries, or a new map if m is nil.
func RecycleMap[K comparable, V any](m map[K]V) map[K]V {
	if m == nil {
		return map[K]V{}
	}
	clear(m)
	return m
}
