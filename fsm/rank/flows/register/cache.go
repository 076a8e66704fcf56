package register

import (
	"math"
	"slices"

	"github.com/kvferry/kvferry/fsm/rank/memory/geometry"
)

// What both ends say of their caches goes into hellos as numbers: nine of the rank, and one of each region, whose high
// bits are the layer and whose low sixteen are the group.

const scalars = 9

// Numbers are those of a geometry.
func Numbers(g *geometry.Geometry) []uint64 {
	list := []uint64{
		uint64(g.Ranks), uint64(g.Rank), uint64(g.Stages), uint64(g.Stage), uint64(g.Heads), uint64(g.CellHeads),
		uint64(g.Blocks), uint64(g.PerLogical), uint64(g.BlockTokens),
	}
	for _, x := range g.Layers {
		list = append(list, uint64(x.Number)<<16|uint64(x.Group))
	}
	return list
}

// read is the geometry that numbers say, if they say one; into is given back with the memory of its list.
func read(list []uint64, into geometry.Geometry) (geometry.Geometry, bool) {
	if len(list) <= scalars {
		return into, false
	}
	for _, n := range list[:scalars] {
		if n > math.MaxUint32 {
			return into, false
		}
	}
	into = geometry.Geometry{
		Ranks: uint32(list[0]), Rank: uint32(list[1]), Stages: uint32(list[2]), Stage: uint32(list[3]),
		Heads: uint32(list[4]), CellHeads: uint32(list[5]), Blocks: uint32(list[6]), PerLogical: uint32(list[7]),
		BlockTokens: uint32(list[8]), Layers: into.Layers[:0],
	}
	for _, n := range list[scalars:] {
		if n>>16 > math.MaxUint32 {
			return into, false
		}
		into.Layers = append(into.Layers, geometry.Layer{Number: uint32(n >> 16), Group: uint16(n)})
	}
	return into, into.Check() == nil
}

// Sum is one number for what both ends of a registration said of their caches, as Numbers have it: the consumer's, how
// many those are, and the producer's. It is never zero. A hello that was damaged on its way, or was another's, shows by
// it, also where what it says would fit.
func Sum(consumer, producer []uint64) uint64 {
	h := uint64(14695981039346656037)
	for _, n := range consumer {
		h = added(h, n)
	}
	h = added(h, uint64(len(consumer)))
	for _, n := range producer {
		h = added(h, n)
	}
	return max(h, 1)
}

func added(h, n uint64) uint64 {
	h = (h ^ n) * 1099511628211
	return h ^ h>>32
}

// hasGroup says whether a rank has a layer of a group's blocks.
func hasGroup(g *geometry.Geometry, group uint16) bool {
	return slices.ContainsFunc(g.Layers, func(x geometry.Layer) bool {
		return x.Group == group || x.Group == geometry.Shared
	})
}

// whole is the plan of all pages of a rank, in the order in which they are claimed.
func whole(g *geometry.Geometry) geometry.Plan {
	alone := *g
	alone.Stages, alone.Stage = 1, 0
	plan, err := geometry.Match(&alone, &alone)
	if err != nil {
		panic("BUG: a rank's cache does not fit itself")
	}
	return plan
}

// lists are blocks by group, in memory of their own.
type lists struct {
	of      []geometry.Blocks
	numbers []uint32
}

// keep copies what is lent to us for a step.
func (l *lists) keep(from []geometry.Blocks) {
	l.of, l.numbers = l.of[:0], l.numbers[:0]
	for _, x := range from {
		l.numbers = append(l.numbers, x.Logical...)
	}
	at := 0
	for _, x := range from {
		x.Logical = l.numbers[at : at+len(x.Logical) : at+len(x.Logical)]
		at += len(x.Logical)
		l.of = append(l.of, x)
	}
}

// shed gives large memory back.
func (l *lists) shed() {
	if cap(l.numbers) > 1<<10 {
		*l = lists{}
	}
}
