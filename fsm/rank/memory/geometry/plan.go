package geometry

import (
	"cmp"
	"slices"
)

// A Plan says which pages one producer rank writes into one consumer rank. A plan is made once for the pair, by either
// side, and is the same on both sides.
type Plan struct {
	producer, consumer planSide
	shares             uint32       // pages of a block and layer that this producer rank writes; 0: none
	layers             []layerRoute // in the order of the consumer's regions
	groups             []uint16     // groups of the consumer's layers, in order
}

// A planSide is what a plan knows of one side.
type planSide struct {
	blocks, perLogical, shares uint32
	firstShare                 uint32 // the first of the shares that are written
	ranks, rank                uint32
}

// A layerRoute is a layer with the regions that hold it on both sides.
type layerRoute struct {
	group              uint16
	producer, consumer uint32
}

// pageNumber returns the number of a page. share counts from the first share that is written.
func (h *planSide) pageNumber(region, block, share uint32) uint32 {
	return (region*h.blocks+block)*h.shares + h.firstShare + share
}

// MatchRanks makes the plan of a producer rank and a consumer rank. The plan is empty if the ranks are not neighbours,
// or if another producer rank writes the same pages. MatchRanks refuses what cannot be paired with an *Error that names
// the field. MatchRanks does not check that the stages together have all layers of the consumer; CheckCoverage does.
func MatchRanks(producer, consumer *Geometry) (Plan, error) {
	if err := producer.Check(); err != nil {
		return Plan{}, withSide("producer", err)
	}
	if err := consumer.Check(); err != nil {
		return Plan{}, withSide("consumer", err)
	}
	producers, err := ProducersOf(consumer, producer.Ranks, producer.Stages)
	if err != nil {
		return Plan{}, err
	}
	if consumer.Stages != 1 {
		return Plan{}, withSide("consumer", newError(Unsupported, "stages", formatNumber(uint64(consumer.Stages)),
			"want 1: a consumer has no pipeline"))
	}
	for _, x := range []struct {
		field string
		p, c  uint32
	}{
		{"heads", producer.Heads, consumer.Heads},
		{"cell_heads", producer.CellHeads, consumer.CellHeads},
		{"block_tokens", producer.BlockTokens, consumer.BlockTokens},
	} {
		if x.p != x.c {
			return Plan{}, withSide("producer", newError(Mismatch, x.field, formatNumber(uint64(x.p)), "the consumer has "+
				formatNumber(uint64(x.c))))
		}
	}
	p := Plan{producer: newPlanSide(producer), consumer: newPlanSide(consumer)}
	if producers.Has(producer.Stage, producer.Rank) && isFirstWriter(producer, producers.First) {
		p.matchHeads(producer, consumer)
	}
	return p, p.routeLayers(producer, consumer)
}

// newPlanSide returns the half of a plan for one side.
func newPlanSide(g *Geometry) planSide {
	return planSide{blocks: g.Blocks, perLogical: g.PerLogical, shares: g.SharesPerBlock(), ranks: g.Ranks, rank: g.Rank}
}

// isFirstWriter reports whether this producer rank is the first of the consumer's neighbours that have the same heads
// as this rank. first is the first neighbour.
func isFirstWriter(producer *Geometry, first uint32) bool {
	switch {
	case producer.Rank == first:
		return true
	case producer.Heads == 0:
		return false
	}
	return producer.firstHead(producer.Rank) != producer.firstHead(producer.Rank-1)
}

// matchHeads finds the cells that both sides have. The heads of one side are a subset of the heads of the other side,
// because the larger number of ranks is a multiple of the smaller number.
func (p *Plan) matchHeads(producer, consumer *Geometry) {
	p.shares = min(p.producer.shares, p.consumer.shares)
	if producer.Heads == 0 {
		return
	}
	from, to := producer.firstHead(producer.Rank), consumer.firstHead(consumer.Rank)
	if from < to {
		p.producer.firstShare = (to - from) / producer.CellHeads
	} else {
		p.consumer.firstShare = (from - to) / consumer.CellHeads
	}
}

// routeLayers finds the consumer's region for each layer of the producer.
func (p *Plan) routeLayers(producer, consumer *Geometry) error {
	consumerLayers := layersByNumber(consumer.Layers)
	p.layers = make([]layerRoute, 0, len(producer.Layers))
	for region, x := range producer.Layers {
		at, found := slices.BinarySearchFunc(consumerLayers, x.Number, func(i int, n uint32) int {
			return cmp.Compare(consumer.Layers[i].Number, n)
		})
		if !found {
			*p = Plan{}
			return withSide("producer", newError(Mismatch, "layers", formatNumber(uint64(x.Number)), "the consumer has no such layer"))
		}
		if y := consumer.Layers[consumerLayers[at]]; y.Group != x.Group {
			*p = Plan{}
			return withSide("producer", newError(Mismatch, "layers", formatNumber(uint64(x.Number)), "it is of group "+groupName(x.Group)+
				", at the consumer of group "+groupName(y.Group)))
		}
		p.layers = append(p.layers, layerRoute{group: x.Group, producer: uint32(region), consumer: uint32(consumerLayers[at])})
	}
	if producer.Stages == 1 && len(producer.Layers) != len(consumer.Layers) {
		*p = Plan{}
		return withSide("producer", newError(Mismatch, "layers", formatNumber(uint64(len(producer.Layers))), "the consumer has "+
			formatNumber(uint64(len(consumer.Layers)))+", and there is no other stage"))
	}
	slices.SortFunc(p.layers, func(a, b layerRoute) int { return cmp.Compare(a.consumer, b.consumer) })
	for _, x := range consumer.Layers {
		p.groups = append(p.groups, x.Group)
	}
	slices.Sort(p.groups)
	p.groups = slices.Compact(p.groups)
	return nil
}

// IsEmpty reports whether this producer rank has nothing to write to this consumer rank.
func (p *Plan) IsEmpty() bool { return p.shares == 0 }

// CheckCoverage returns nil if the plans of one consumer rank with all producer ranks of an engine write each page of a
// block exactly once: no layer is missing, and no two stages have the same layer. Otherwise the error is an *Error.
func CheckCoverage(consumer *Geometry, plans []Plan) error {
	// A part is the shares of a layer that one plan writes.
	type part struct{ region, first, count uint32 }
	parts := []part{}
	for i := range plans {
		p := &plans[i]
		if p.consumer.ranks != consumer.Ranks || p.consumer.rank != consumer.Rank {
			return withSide("consumer", newError(Mismatch, "rank", formatNumber(uint64(p.consumer.rank)),
				"the plan is of another rank: match with rank "+formatNumber(uint64(consumer.Rank))))
		}
		for _, x := range p.layers {
			if !p.IsEmpty() {
				parts = append(parts, part{x.consumer, p.consumer.firstShare, p.shares})
			}
		}
	}
	slices.SortFunc(parts, func(a, b part) int {
		return cmp.Or(cmp.Compare(a.region, b.region), cmp.Compare(a.first, b.first))
	})
	for region := range consumer.Layers {
		layer := formatNumber(uint64(consumer.Layers[region].Number))
		next := uint32(0)
		for ; len(parts) > 0 && parts[0].region == uint32(region) && parts[0].first <= next; parts = parts[1:] {
			if parts[0].first < next {
				return withSide("producer", newError(Mismatch, "layers", layer, "two ranks write it: each layer is of one stage"))
			}
			next += parts[0].count
		}
		if next != consumer.SharesPerBlock() {
			return withSide("producer", newError(Uncovered, "layers", layer,
				"no ranks write all of it: match with each rank of each stage"))
		}
	}
	return nil
}

// groupName returns the name of a group for errors.
func groupName(group uint16) string {
	if group == Shared {
		return "shared"
	}
	return formatNumber(uint64(group))
}
