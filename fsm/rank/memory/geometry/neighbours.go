package geometry

import "iter"

// Neighbours are the ranks of the other engine with which a rank registers, or which register with the rank: in each of
// Stages stages, Count ranks from First on.
type Neighbours struct{ Stages, First, Count uint32 }

// ProducersOf returns the producer ranks with which a consumer rank registers, for a producer engine of the given size:
// in each stage the ranks that have some of the consumer's heads. Some of these ranks may have nothing to write
// (Plan.IsEmpty), for example when several have the same heads. ProducersOf refuses sizes if neither number of ranks
// divides the other.
func ProducersOf(consumer *Geometry, ranks, stages uint32) (Neighbours, error) {
	if stages == 0 || stages > StagesMax {
		return Neighbours{}, withSide("producer", newError(Unusable, "stages", formatNumber(uint64(stages)), "want "+formatLimits(1, StagesMax)))
	}
	return findNeighbours(consumer, "consumer", ranks, stages, "producer")
}

// ConsumersOf returns the ranks of a consumer engine of the given size, with one stage, to which this producer rank
// belongs.
func ConsumersOf(producer *Geometry, ranks uint32) (Neighbours, error) {
	return findNeighbours(producer, "producer", ranks, 1, "consumer")
}

// findNeighbours returns the ranks of the other side that have some of the same heads. If this side has fewer ranks,
// these are the ranks among which this rank's part is divided. Otherwise the only neighbour is the rank that has this
// rank's part as well.
func findNeighbours(g *Geometry, side string, ranks, stages uint32, otherSide string) (Neighbours, error) {
	if ranks == 0 || ranks > RanksMax {
		return Neighbours{}, withSide(otherSide, newError(Unusable, "ranks", formatNumber(uint64(ranks)), "want "+formatLimits(1, RanksMax)))
	}
	if g.Ranks == 0 || g.Rank >= g.Ranks {
		return Neighbours{}, withSide(side, newError(Unusable, "rank", formatNumber(uint64(g.Rank)), "want one below ranks"))
	}
	switch {
	case ranks%g.Ranks == 0:
		return Neighbours{Stages: stages, First: ranks / g.Ranks * g.Rank, Count: ranks / g.Ranks}, nil
	case g.Ranks%ranks == 0:
		return Neighbours{Stages: stages, First: g.Rank / (g.Ranks / ranks), Count: 1}, nil
	}
	return Neighbours{}, withSide(otherSide, newError(Unsupported, "ranks", formatNumber(uint64(ranks)),
		"want a multiple or a divisor of the "+side+"'s "+formatNumber(uint64(g.Ranks))))
}

// Len returns the number of neighbours.
func (n Neighbours) Len() uint64 { return uint64(n.Stages) * uint64(n.Count) }

// Has reports whether a rank of a stage is a neighbour.
func (n Neighbours) Has(stage, rank uint32) bool {
	return stage < n.Stages && rank >= n.First && rank-n.First < n.Count
}

// Index returns the position of a neighbour in the order of All, counted from 0. Has must be true.
func (n Neighbours) Index(stage, rank uint32) uint64 {
	return uint64(stage)*uint64(n.Count) + uint64(rank-n.First)
}

// All yields the stage and the rank of each neighbour, stage by stage.
func (n Neighbours) All() iter.Seq2[uint32, uint32] {
	return func(yield func(stage, rank uint32) bool) {
		for stage := range n.Stages {
			for i := range n.Count {
				if !yield(stage, n.First+i) {
					return
				}
			}
		}
	}
}
