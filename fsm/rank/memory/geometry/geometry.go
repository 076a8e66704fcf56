// Package geometry computes which pages of a prefill rank's KV cache are copied into which pages of a decode rank's KV
// cache, when the two engines have different tensor and pipeline parallelism. This is the arithmetic of
// registration-driven push. In this package the prefill rank is the producer and the decode rank is the consumer.
//
// The unit on both sides is a cell: one kernel block of one layer, for a few neighbouring KV heads, or for the whole
// latent if each rank has the whole cache (MLA). A page of a pool is one cell. Cells have the same number of bytes on
// both sides, which the caller ensures (see [Regions.CellBytes] and [Join]). A rank that has more heads has more pages,
// so that different tensor parallelism only means that whole pages are moved.
//
// A caller may rely on the following:
//
//   - Everything that is not supported is refused with a typed [Error] that names the field, and is never written in
//     part.
//   - Blocks of the two sides are paired by their absolute positions in the sequence, never by the ends of lists.
//   - A consumer can name the pages that it must grant without the block numbers of the producer, and in the order in
//     which the producer pairs them.
//
// The values of this package are plain data, and Check bounds all of them.
//
// Example: a model has 8 KV heads and cells have 2 heads. The producer has 2 ranks, so each producer rank has 4 heads,
// and 2 pages for each block of a layer. The consumer has 4 ranks, so each consumer rank has 2 heads, and 1 page for
// each block. Consumer rank 1 has the heads 2 and 3, and [ProducersOf] says that it registers with producer rank 0.
// [MatchRanks] makes the [Plan] of this pair, which writes the second page of each block of producer rank 0 into the
// only page of the block at consumer rank 1. [Plan.PairBlocks] lists the page numbers for the blocks of a request.
package geometry

import (
	"cmp"
	"math"
	"slices"
)

// Limits of the values that a peer can send. They ensure that page numbers fit into 32 bits and that no loop is long.
const (
	RanksMax  = 1 << 12 // tensor parallel ranks
	StagesMax = 1 << 10 // pipeline stages
	LayersMax = 1 << 14 // layers of a rank
	HeadsMax  = 1 << 14 // KV heads of a model
)

// Shared is the group of a layer in a region that holds blocks of every KV-cache group.
const Shared = math.MaxUint16

// A Layer describes the contents of one region of a rank's cache.
type Layer struct {
	Number uint32 // number of the layer in the model, over all stages; the same on both sides
	Group  uint16 // the KV-cache group of the blocks in the region, or Shared
}

// A Geometry describes how the KV cache of one rank is divided into pages. The Geometry owns the list of layers; no
// other code may write to that list.
type Geometry struct {
	Ranks, Rank   uint32  // tensor parallelism: number of ranks, and this rank
	Stages, Stage uint32  // pipeline parallelism: number of stages, and this stage; a consumer has one stage
	Heads         uint32  // KV heads of the model; 0: each rank has the whole cache (MLA)
	CellHeads     uint32  // KV heads of a page; 0 if Heads is 0
	Blocks        uint32  // kernel blocks in each region
	PerLogical    uint32  // kernel blocks of a logical block, the unit of block lists
	BlockTokens   uint32  // tokens of a kernel block
	Layers        []Layer // by region
}

// Check returns nil if g describes a cache that can be paired. Otherwise the error is an *Error.
func (g *Geometry) Check() error {
	for _, x := range []struct {
		field          string
		is, least, end uint64
	}{
		{"ranks", uint64(g.Ranks), 1, RanksMax + 1},
		{"rank", uint64(g.Rank), 0, uint64(g.Ranks)},
		{"stages", uint64(g.Stages), 1, StagesMax + 1},
		{"stage", uint64(g.Stage), 0, uint64(g.Stages)},
		{"heads", uint64(g.Heads), 0, HeadsMax + 1},
		{"layers", uint64(len(g.Layers)), 1, LayersMax + 1},
		{"blocks", uint64(g.Blocks), 1, 1 << 32},
		{"per_logical", uint64(g.PerLogical), 1, uint64(g.Blocks) + 1},
		{"block_tokens", uint64(g.BlockTokens), 1, 1 << 32},
	} {
		if x.is < x.least || x.is >= x.end {
			return newError(Unusable, x.field, formatNumber(x.is), "want "+formatLimits(x.least, x.end-1))
		}
	}
	if err := g.checkHeads(); err != nil {
		return err
	}
	if g.CountPages() > math.MaxUint32 {
		return newError(Unusable, "blocks", formatNumber(uint64(g.Blocks)), "with "+formatNumber(uint64(len(g.Layers)))+" layers of "+
			formatNumber(uint64(g.SharesPerBlock()))+" cells they are more than 4294967295 pages: give cells more heads")
	}
	numbers := layersByNumber(g.Layers)
	for i := 1; i < len(numbers); i++ {
		if x := g.Layers[numbers[i]].Number; x == g.Layers[numbers[i-1]].Number {
			return newError(Unusable, "layers", formatNumber(uint64(x)), "is there twice: number each region once")
		}
	}
	return nil
}

// checkHeads is the part of Check that concerns heads, which must divide evenly among the ranks.
func (g *Geometry) checkHeads() error {
	heads, ranks := formatNumber(uint64(g.Heads)), formatNumber(uint64(g.Ranks))
	switch {
	case g.Heads == 0:
		if g.CellHeads != 0 {
			return newError(Unusable, "cell_heads", formatNumber(uint64(g.CellHeads)), "want 0, as heads is: each rank has all")
		}
	case g.Heads >= g.Ranks && g.Heads%g.Ranks != 0:
		return newError(Unsupported, "heads", heads, "want a multiple of the "+ranks+" ranks")
	case g.Heads < g.Ranks && g.Ranks%g.Heads != 0:
		return newError(Unsupported, "heads", heads, "want a divisor of the "+ranks+" ranks")
	case g.CellHeads == 0, g.headsPerRank()%g.CellHeads != 0:
		return newError(Unusable, "cell_heads", formatNumber(uint64(g.CellHeads)),
			"want a divisor of the "+formatNumber(uint64(g.headsPerRank()))+" heads of a rank")
	}
	return nil
}

// headsPerRank returns the number of heads that this rank has. If the model has fewer heads than ranks, the result is
// 1, and other ranks have the same head.
func (g *Geometry) headsPerRank() uint32 { return max(1, g.Heads/g.Ranks) }

// firstHead returns the first head of a rank. The model must have heads.
func (g *Geometry) firstHead(rank uint32) uint32 {
	return uint32(uint64(rank) * uint64(g.Heads) / uint64(g.Ranks))
}

// SharesPerBlock returns the number of pages that this rank has for one block of one layer.
func (g *Geometry) SharesPerBlock() uint32 {
	if g.Heads == 0 {
		return 1
	}
	return g.headsPerRank() / g.CellHeads
}

// CountPages returns the number of pages of this rank. Page numbers are below this number.
func (g *Geometry) CountPages() uint64 {
	// The first product fits, because there are at most 2^14 layers and 2^32 blocks. A result that does not fit 32 bits
	// is reported as more than any page number.
	blocks := uint64(len(g.Layers)) * uint64(g.Blocks)
	if blocks > math.MaxUint32 {
		return math.MaxUint64
	}
	return blocks * uint64(g.SharesPerBlock())
}

// PageNumber returns the number of a page. The blocks of a region follow each other, and the shares of a block follow
// each other within the block.
func (g *Geometry) PageNumber(region, block, share uint32) uint32 {
	return (region*g.Blocks+block)*g.SharesPerBlock() + share
}

// PlaceOf returns the region, block and share of a page: the reverse of PageNumber.
func (g *Geometry) PlaceOf(page uint32) (region, block, share uint32) {
	shares := g.SharesPerBlock()
	block, share = page/shares, page%shares
	return block / g.Blocks, block % g.Blocks, share
}

// layersByNumber returns the indexes of the layers in the order of the layers' numbers.
func layersByNumber(layers []Layer) []int {
	order := make([]int, len(layers))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(layers[a].Number, layers[b].Number) })
	return order
}
