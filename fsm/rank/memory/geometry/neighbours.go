package geometry

import "iter"

// Neighbours are ranks of the other engine that a rank has to do with: in each stage, Count ranks from First on.
type Neighbours struct{ Stages, First, Count uint32 }

// Producers are the ranks of a producer engine of these sizes that a consumer rank registers with: of each stage the
// ranks that have a part of what it has. Some may have nothing to write (Plan.Empty), as when siblings have the same.
// Sizes of which neither divides the other are refused.
func Producers(consumer *Geometry, ranks, stages uint32) (Neighbours, error) {
	if stages == 0 || stages > StagesMax {
		return Neighbours{}, of("producer", refuse(Unusable, "stages", number(uint64(stages)), "want "+between(1, StagesMax)))
	}
	return neighbours(consumer, "consumer", ranks, stages, "producer")
}

// Consumers are the ranks of a consumer engine of that size, of one stage, whose producer this one is.
func Consumers(producer *Geometry, ranks uint32) (Neighbours, error) {
	return neighbours(producer, "producer", ranks, 1, "consumer")
}

// neighbours are ranks of the other side that have a part of the same heads. Where this side has fewer ranks it is the
// ranks that this one is cut into; else it is the one that has this one's part.
func neighbours(g *Geometry, side string, ranks, stages uint32, other string) (Neighbours, error) {
	if ranks == 0 || ranks > RanksMax {
		return Neighbours{}, of(other, refuse(Unusable, "ranks", number(uint64(ranks)), "want "+between(1, RanksMax)))
	}
	if g.Ranks == 0 || g.Rank >= g.Ranks {
		return Neighbours{}, of(side, refuse(Unusable, "rank", number(uint64(g.Rank)), "want one below ranks"))
	}
	switch {
	case ranks%g.Ranks == 0:
		return Neighbours{Stages: stages, First: ranks / g.Ranks * g.Rank, Count: ranks / g.Ranks}, nil
	case g.Ranks%ranks == 0:
		return Neighbours{Stages: stages, First: g.Rank / (g.Ranks / ranks), Count: 1}, nil
	}
	return Neighbours{}, of(other, refuse(Unsupported, "ranks", number(uint64(ranks)),
		"want a multiple or a divisor of the "+side+"'s "+number(uint64(g.Ranks))))
}

// Len is how many there are.
func (n Neighbours) Len() uint64 { return uint64(n.Stages) * uint64(n.Count) }

// Has says whether a rank of a stage is one.
func (n Neighbours) Has(stage, rank uint32) bool {
	return stage < n.Stages && rank >= n.First && rank-n.First < n.Count
}

// Index numbers those that Has has from 0 on, in the order of All.
func (n Neighbours) Index(stage, rank uint32) uint64 {
	return uint64(stage)*uint64(n.Count) + uint64(rank-n.First)
}

// All yields stage and rank of each, by stage.
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
