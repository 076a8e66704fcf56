package register

import (
	"github.com/kvferry/kvferry/fsm/rank/memory/geometry"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
)

// pagesMax is the largest number of pages of a rank.
const pagesMax = 512

// A shape says how the two engines of a world are divided into ranks. The first nodes are the ranks of the consumer;
// the remaining nodes are the ranks of the producer, stage by stage.
type shape struct {
	consumers, ranks, stages uint32
	heads                    uint32    // number of heads; 0 if each rank has all heads
	layers                   uint32    // layers per stage
	groups                   uint32    // layer groups, assigned in turn; each stage has a layer of each group
	blocks                   uint32    // logical blocks per rank
	kernelPerLogical         [2]uint32 // kernel blocks per logical block: of the consumer, of the producer
}

// shapes lists the sizes of the engines, with at most six nodes.
var shapes = []shape{
	{consumers: 1, ranks: 1, stages: 1}, {consumers: 1, ranks: 2, stages: 1}, {consumers: 2, ranks: 1, stages: 1},
	{consumers: 1, ranks: 1, stages: 2}, {consumers: 2, ranks: 2, stages: 1}, {consumers: 2, ranks: 1, stages: 2},
	{consumers: 1, ranks: 2, stages: 2}, {consumers: 1, ranks: 4, stages: 1}, {consumers: 4, ranks: 1, stages: 1},
	{consumers: 2, ranks: 4, stages: 1}, {consumers: 4, ranks: 2, stages: 1}, {consumers: 2, ranks: 2, stages: 2},
}

// nodeCount returns the number of ranks of both engines.
func (s *shape) nodeCount() int { return int(s.consumers + s.ranks*s.stages) }

// drawShape draws the shape of a plan among the shapes with as many nodes as the plan has.
func drawShape(p *plan.Plan) shape {
	at := func(n uint64) draw.Value { return draw.Hash(p.Seed, draw.Plan, 15, n) }
	var fit []shape
	for _, s := range shapes {
		if s.nodeCount() == p.NodeCount() {
			fit = append(fit, s)
		}
	}
	if draw.IsFixed(p.Seed) {
		s := fit[0]
		if len(p.Jobs) > 0 && p.Jobs[0].Flags[halvesWord] {
			s = fit[1]
		}
		s.heads, s.layers, s.groups, s.blocks, s.kernelPerLogical = 2, 1, 1, 2, [2]uint32{1, 1}
		if s.nodeCount() == 2 {
			s.heads = 1
		}
		return s
	}
	s := fit[at(0).Below(uint64(len(fit)))]
	ranksMax := max(s.consumers, s.ranks)
	switch d := at(1); {
	case d.ChancePermille(250): // Each rank has all heads.
	case d.Rehash().ChancePermille(250) && ranksMax > 1: // Some ranks have the same heads.
		s.heads = ranksMax / 2
	default:
		s.heads = ranksMax * uint32(d.Rehash().Rehash().Between(1, 2))
	}
	s.layers, s.blocks = uint32(at(2).Between(1, 2)), uint32(at(3).Between(2, 6))
	if s.groups = 1; at(6).ChancePermille(400) {
		s.groups = s.layers
	}
	s.kernelPerLogical = [2]uint32{uint32(at(4).Between(1, 2)), uint32(at(5).Between(1, 2))}
	return s
}

// isConsumer reports whether a node is a rank of the consumer.
func (s *shape) isConsumer(node int32) bool { return uint32(node) < s.consumers }

// engineName returns the name of the engine of a node.
func (s *shape) engineName(node int32) string {
	if s.isConsumer(node) {
		return "D"
	}
	return "P"
}

// kernelPerLogicalOf returns the number of kernel blocks per logical block of a node.
func (s *shape) kernelPerLogicalOf(node int32) uint32 {
	if s.isConsumer(node) {
		return s.kernelPerLogical[0]
	}
	return s.kernelPerLogical[1]
}

// geometryOf returns the geometry of a node.
func (s *shape) geometryOf(node int32) *geometry.Geometry {
	g := &geometry.Geometry{
		Heads: s.heads, CellHeads: min(s.heads, 1), BlockTokens: 4,
		PerLogical: s.kernelPerLogicalOf(node), Blocks: s.blocks * s.kernelPerLogicalOf(node),
	}
	if s.isConsumer(node) {
		g.Ranks, g.Rank, g.Stages = s.consumers, uint32(node), 1
		for i := range s.layers * s.stages {
			g.Layers = append(g.Layers, s.makeLayer(i))
		}
		return g
	}
	at := uint32(node) - s.consumers
	g.Ranks, g.Rank, g.Stages, g.Stage = s.ranks, at%s.ranks, s.stages, at/s.ranks
	for i := range s.layers {
		g.Layers = append(g.Layers, s.makeLayer(g.Stage*s.layers+i))
	}
	return g
}

// makeLayer returns the layer with a number that counts over all stages.
func (s *shape) makeLayer(number uint32) geometry.Layer {
	return geometry.Layer{Number: number, Group: uint16(number % s.groups)}
}

// firstHead returns the first head of a rank.
func firstHead(g *geometry.Geometry) uint32 {
	return uint32(uint64(g.Rank) * uint64(g.Heads) / uint64(g.Ranks))
}

// producersOf returns the nodes with which a rank of the consumer registers, in order.
func (s *shape) producersOf(g *geometry.Geometry) (nodes []int32) {
	near, err := geometry.ProducersOf(g, s.ranks, s.stages)
	if err != nil {
		panic("BUG: the shapes of the engines do not match: " + err.Error())
	}
	for stage, rank := range near.All() {
		nodes = append(nodes, int32(s.consumers+stage*s.ranks+rank))
	}
	return nodes
}
