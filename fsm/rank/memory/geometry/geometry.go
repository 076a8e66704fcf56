// Package geometry says which pages of a prefill rank's KV cache belong into which pages of a decode rank's, where the
// two engines have tensor and pipeline parallelism of their own: the arithmetic of registration-driven push. The
// prefill rank is the producer here, the decode rank the consumer.
//
// The unit of both sides is a cell: one kernel block of one layer, of a few KV heads that lie side by side, or of the
// whole latent where each rank has all (MLA). A page of a pool is one cell, and the cells of both sides have the same
// bytes, which the caller sees to (Regions has them). So whoever has more heads has more pages, and unequal tensor
// parallelism moves whole pages.
//
// A caller may rely on this: what is not supported is refused by a typed error that names the field, and never written
// in part; blocks of the two sides pair by their absolute position in the sequence, never by the ends of lists; a
// consumer names the pages that it has to grant without a block number of the producer's, in the very order in which
// the producer pairs them. A value here is plain data, and all of it is bounded by Check.
package geometry

import (
	"cmp"
	"math"
	"slices"
)

// Limits of what a peer can say, so that numbers of pages fit 32 bits and no walk is long.
const (
	RanksMax  = 1 << 12 // tensor parallel
	StagesMax = 1 << 10 // pipeline parallel
	LayersMax = 1 << 14 // of a rank
	HeadsMax  = 1 << 14 // of a model
)

// Shared is the group of a layer whose region holds blocks of every KV-cache group.
const Shared = math.MaxUint16

// A Layer is what one region of a rank's cache holds.
type Layer struct {
	Number uint32 // in the model, over all stages: both sides give a layer the same one
	Group  uint16 // the KV-cache group whose blocks it has, or Shared
}

// A Geometry says how the KV cache of one rank is cut into pages. It owns its list; nobody else may write to it.
type Geometry struct {
	Ranks, Rank   uint32 // tensor parallel: how many, and which one this is
	Stages, Stage uint32 // pipeline parallel; a consumer has one stage
	Heads         uint32 // KV heads of the model; 0: each rank has the whole cache (MLA)
	CellHeads     uint32 // KV heads of a page; 0 where Heads is
	Blocks        uint32 // kernel blocks in each region
	PerLogical    uint32 // kernel blocks of a logical block, which is what block lists name
	BlockTokens   uint32 // tokens of a kernel block
	Layers        []Layer
}

// Check says whether g is a rank's cache that can be paired. The error is an *Error.
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
			return refuse(Unusable, x.field, number(x.is), "want "+between(x.least, x.end-1))
		}
	}
	if err := g.checkHeads(); err != nil {
		return err
	}
	if g.Pages() > math.MaxUint32 {
		return refuse(Unusable, "blocks", number(uint64(g.Blocks)), "with "+number(uint64(len(g.Layers)))+" layers of "+
			number(uint64(g.Shares()))+" cells they are more than 4294967295 pages: give cells more heads")
	}
	numbers := sorted(g.Layers)
	for i := 1; i < len(numbers); i++ {
		if x := g.Layers[numbers[i]].Number; x == g.Layers[numbers[i-1]].Number {
			return refuse(Unusable, "layers", number(uint64(x)), "is there twice: number each region once")
		}
	}
	return nil
}

func (g *Geometry) checkHeads() error {
	heads, ranks := number(uint64(g.Heads)), number(uint64(g.Ranks))
	switch {
	case g.Heads == 0:
		if g.CellHeads != 0 {
			return refuse(Unusable, "cell_heads", number(uint64(g.CellHeads)), "want 0, as heads is: each rank has all")
		}
	case g.Heads >= g.Ranks && g.Heads%g.Ranks != 0:
		return refuse(Unsupported, "heads", heads, "want a multiple of the "+ranks+" ranks")
	case g.Heads < g.Ranks && g.Ranks%g.Heads != 0:
		return refuse(Unsupported, "heads", heads, "want a divisor of the "+ranks+" ranks")
	case g.CellHeads == 0, g.headsHere()%g.CellHeads != 0:
		return refuse(Unusable, "cell_heads", number(uint64(g.CellHeads)),
			"want a divisor of the "+number(uint64(g.headsHere()))+" heads of a rank")
	}
	return nil
}

// headsHere is how many heads this rank has; of a model that has fewer than ranks, one that other ranks have, too.
func (g *Geometry) headsHere() uint32 { return max(1, g.Heads/g.Ranks) }

// firstHead is the first head that this rank has, of a model that has heads.
func (g *Geometry) firstHead(rank uint32) uint32 {
	return uint32(uint64(rank) * uint64(g.Heads) / uint64(g.Ranks))
}

// Shares is how many pages a block of a layer has at this rank.
func (g *Geometry) Shares() uint32 {
	if g.Heads == 0 {
		return 1
	}
	return g.headsHere() / g.CellHeads
}

// Pages is how many pages this rank has: their numbers are below it.
func (g *Geometry) Pages() uint64 {
	// At most 2^14 layers and 2^32 blocks, so that the first product fits; what is over the top is more than any page.
	blocks := uint64(len(g.Layers)) * uint64(g.Blocks)
	if blocks > math.MaxUint32 {
		return math.MaxUint64
	}
	return blocks * uint64(g.Shares())
}

// Page is the number of a page: a region's blocks lie one after the other, and a block's shares within it.
func (g *Geometry) Page(region, block, share uint32) uint32 {
	return (region*g.Blocks+block)*g.Shares() + share
}

// Place says where a page is: the reverse of Page.
func (g *Geometry) Place(page uint32) (region, block, share uint32) {
	shares := g.Shares()
	block, share = page/shares, page%shares
	return block / g.Blocks, block % g.Blocks, share
}

// sorted is the order of the layers by number.
func sorted(layers []Layer) []int {
	order := make([]int, len(layers))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(layers[a].Number, layers[b].Number) })
	return order
}
