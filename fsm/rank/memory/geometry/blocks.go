package geometry

import "slices"

// Blocks lists the blocks of one side that hold a contiguous part of a request's KV cache, in the order of the
// sequence. An empty list means no blocks, never all blocks. The caller owns the list, and this package does not keep
// the list. No block may occur twice in the lists of a request: the code that claims the pages ensures this.
type Blocks struct {
	Group uint16
	// First is the absolute position in the sequence of the first block, in kernel blocks. First is a multiple of
	// PerLogical, because a logical block begins there.
	First uint64
	// End is the position after the last kernel block that counts, because the last logical block may be longer than
	// the sequence. 0: all blocks of the list count.
	End     uint64
	Logical []uint32 // numbers of logical blocks at that side
}

// positionMax is above every valid position, and small enough that sums of positions cannot overflow.
const positionMax = 1 << 40

// endPosition returns the position after the last kernel block that counts. The list must be checked.
func (b *Blocks) endPosition(perLogical uint32) uint64 {
	if b.End != 0 || len(b.Logical) == 0 {
		return max(b.First, b.End)
	}
	return b.First + uint64(len(b.Logical))*uint64(perLogical)
}

// blockAt returns the kernel block of this side at a position. The list must contain the position.
func (h *planSide) blockAt(b *Blocks, position uint64) uint32 {
	i, per := position-b.First, uint64(h.perLogical)
	return b.Logical[i/per]*h.perLogical + uint32(i%per)
}

// checkLists returns an error if the lists of one side are invalid. The lists must be in the order of their groups,
// each group once and known, and each block must exist.
func (p *Plan) checkLists(h *planSide, side string, lists []Blocks) error {
	for i := range lists {
		b := &lists[i]
		badList := func(value uint64, remedy string) error {
			return withSide(side, newError(BadBlocks, "blocks of group "+formatNumber(uint64(b.Group)), formatNumber(value), remedy))
		}
		if i > 0 && lists[i-1].Group >= b.Group {
			return badList(uint64(lists[i-1].Group), "the group before: list groups in order, each once")
		}
		if !p.knowsGroup(b.Group) {
			return badList(uint64(b.Group), "no layer is of this group")
		}
		per := uint64(h.perLogical)
		listed := uint64(len(b.Logical)) * per
		switch {
		case b.First > positionMax || listed > positionMax:
			return badList(b.First, "the first is not below "+formatNumber(positionMax))
		case len(b.Logical) == 0 && b.End > b.First:
			return badList(b.End, "the end of no blocks: list them, or leave out the end")
		case len(b.Logical) == 0:
			continue
		case b.First%per != 0:
			return badList(b.First, "the first is no multiple of the "+formatNumber(per)+" kernel blocks of a logical one")
		case b.End != 0 && b.End <= b.First:
			return badList(b.End, "the end is not behind the first, "+formatNumber(b.First)+": list nothing instead")
		case b.End > b.First+listed:
			return badList(b.End, "the end is behind the last that is listed: those are "+formatBlocks(b.First, b.First+listed))
		}
		for _, n := range b.Logical {
			if uint64(n)*per+per > uint64(h.blocks) {
				return badList(uint64(n), "there are "+formatNumber(uint64(h.blocks)/per)+" logical blocks")
			}
		}
	}
	return nil
}

// knowsGroup reports whether the consumer has a layer for blocks of this group.
func (p *Plan) knowsGroup(group uint16) bool {
	if len(p.groups) == 0 || group == Shared {
		return false
	}
	_, found := slices.BinarySearch(p.groups, group)
	return found || p.groups[len(p.groups)-1] == Shared
}

// checkCovered returns an error if the producer's lists lack a position of the consumer's lists. checkCovered considers
// only groups that the producer has layers of; blocks of other groups belong to other stages.
func (p *Plan) checkCovered(producer, consumer []Blocks) error {
	for i := range consumer {
		c := &consumer[i]
		if len(c.Logical) == 0 {
			continue
		}
		end := c.endPosition(p.consumer.perLogical)
		producerList, listed := listOfGroup(producer, c.Group), "nothing"
		if producerList != nil && len(producerList.Logical) > 0 {
			producerEnd := producerList.endPosition(p.producer.perLogical)
			if producerList.First <= c.First && producerEnd >= end {
				continue
			}
			listed = formatBlocks(producerList.First, producerEnd)
		}
		if !slices.ContainsFunc(p.layers, func(x layerRoute) bool { return x.group == c.Group || x.group == Shared }) {
			continue
		}
		return withSide("consumer", newError(Uncovered, "blocks of group "+formatNumber(uint64(c.Group)), formatBlocks(c.First, end),
			"the producer has "+listed))
	}
	return nil
}

// listOfGroup returns the list of a group, or nil.
func listOfGroup(lists []Blocks, group uint16) *Blocks {
	for i := range lists {
		if lists[i].Group == group {
			return &lists[i]
		}
	}
	return nil
}

// formatBlocks formats a range of positions in kernel blocks, with the last position included.
func formatBlocks(first, end uint64) string {
	return "kernel blocks " + formatNumber(first) + " to " + formatNumber(end-1)
}
