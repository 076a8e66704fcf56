package register

import (
	"math"
	"slices"

	"github.com/kvferry/kvferry/fsm/rank/memory/geometry"
)

// The description of a cache in a hello is a list of numbers: nine numbers of the rank, and a number for each region,
// with the layer in the high bits and the group in the low 16 bits.

const scalarCount = 9

// EncodeGeometry returns the list of numbers for a geometry.
func EncodeGeometry(g *geometry.Geometry) []uint64 {
	list := []uint64{
		uint64(g.Ranks), uint64(g.Rank), uint64(g.Stages), uint64(g.Stage), uint64(g.Heads), uint64(g.CellHeads),
		uint64(g.Blocks), uint64(g.PerLogical), uint64(g.BlockTokens),
	}
	for _, x := range g.Layers {
		list = append(list, uint64(x.Number)<<16|uint64(x.Group))
	}
	return list
}

// decodeGeometry decodes a geometry from its numbers, reusing the memory of into. It returns false if the numbers are
// invalid.
func decodeGeometry(list []uint64, into geometry.Geometry) (geometry.Geometry, bool) {
	if len(list) <= scalarCount {
		return into, false
	}
	for _, n := range list[:scalarCount] {
		if n > math.MaxUint32 {
			return into, false
		}
	}
	into = geometry.Geometry{
		Ranks: uint32(list[0]), Rank: uint32(list[1]), Stages: uint32(list[2]), Stage: uint32(list[3]),
		Heads: uint32(list[4]), CellHeads: uint32(list[5]), Blocks: uint32(list[6]), PerLogical: uint32(list[7]),
		BlockTokens: uint32(list[8]), Layers: into.Layers[:0],
	}
	for _, n := range list[scalarCount:] {
		if n>>16 > math.MaxUint32 {
			return into, false
		}
		into.Layers = append(into.Layers, geometry.Layer{Number: uint32(n >> 16), Group: uint16(n)})
	}
	return into, into.Check() == nil
}

// Checksum returns a checksum of the numbers (see EncodeGeometry) of both ends of a registration: the consumer's
// numbers, their count, and the producer's numbers. The result is never zero. The checksum reveals a hello that was
// damaged in transit or belongs to another peer, even if the geometries would fit.
func Checksum(consumer, producer []uint64) uint64 {
	h := uint64(14695981039346656037)
	for _, n := range consumer {
		h = mixNumber(h, n)
	}
	h = mixNumber(h, uint64(len(consumer)))
	for _, n := range producer {
		h = mixNumber(h, n)
	}
	return max(h, 1)
}

func mixNumber(h, n uint64) uint64 {
	h = (h ^ n) * 1099511628211
	return h ^ h>>32
}

// hasGroup reports whether a rank has a layer of a group of blocks.
func hasGroup(g *geometry.Geometry, group uint16) bool {
	return slices.ContainsFunc(g.Layers, func(x geometry.Layer) bool {
		return x.Group == group || x.Group == geometry.Shared
	})
}

// planAllPages returns the plan of all pages of a rank, in the order in which they are claimed.
func planAllPages(g *geometry.Geometry) geometry.Plan {
	singleStage := *g
	singleStage.Stages, singleStage.Stage = 1, 0
	plan, err := geometry.MatchRanks(&singleStage, &singleStage)
	if err != nil {
		panic("BUG: a rank's cache does not fit itself")
	}
	return plan
}

// blockLists are blocks by group, in their own memory.
type blockLists struct {
	groups  []geometry.Blocks
	numbers []uint32
}

// copyFrom copies blocks that are borrowed for a step.
func (l *blockLists) copyFrom(from []geometry.Blocks) {
	l.groups, l.numbers = l.groups[:0], l.numbers[:0]
	for _, x := range from {
		l.numbers = append(l.numbers, x.Logical...)
	}
	at := 0
	for _, x := range from {
		x.Logical = l.numbers[at : at+len(x.Logical) : at+len(x.Logical)]
		at += len(x.Logical)
		l.groups = append(l.groups, x)
	}
}

// releaseMemory releases the memory if it is large.
func (l *blockLists) releaseMemory() {
	if cap(l.numbers) > 1<<10 {
		*l = blockLists{}
	}
}
