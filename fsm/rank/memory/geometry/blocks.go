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

// end returns the position after the last kernel block that counts. The list must be checked.
func (b *Blocks) end(perLogical uint32) uint64 {
	if b.End != 0 || len(b.Logical) == 0 {
		return max(b.First, b.End)
	}
	return b.First + uint64(len(b.Logical))*uint64(perLogical)
}

// at returns the kernel block of this side at a position. The list must contain the position.
func (h *half) at(b *Blocks, position uint64) uint32 {
	i, per := position-b.First, uint64(h.perLogical)
	return b.Logical[i/per]*h.perLogical + uint32(i%per)
}

// check returns an error if the lists of one side are invalid. The lists must be in the order of their groups, each
// group once and known, and each block must exist.
func (p *Plan) check(h *half, side string, lists []Blocks) error {
	for i := range lists {
		b := &lists[i]
		bad := func(value uint64, remedy string) error {
			return of(side, refuse(BadBlocks, "blocks of group "+number(uint64(b.Group)), number(value), remedy))
		}
		if i > 0 && lists[i-1].Group >= b.Group {
			return bad(uint64(lists[i-1].Group), "the group before: list groups in order, each once")
		}
		if !p.knows(b.Group) {
			return bad(uint64(b.Group), "no layer is of this group")
		}
		per := uint64(h.perLogical)
		listed := uint64(len(b.Logical)) * per
		switch {
		case b.First > positionMax || listed > positionMax:
			return bad(b.First, "the first is not below "+number(positionMax))
		case len(b.Logical) == 0 && b.End > b.First:
			return bad(b.End, "the end of no blocks: list them, or leave out the end")
		case len(b.Logical) == 0:
			continue
		case b.First%per != 0:
			return bad(b.First, "the first is no multiple of the "+number(per)+" kernel blocks of a logical one")
		case b.End != 0 && b.End <= b.First:
			return bad(b.End, "the end is not behind the first, "+number(b.First)+": list nothing instead")
		case b.End > b.First+listed:
			return bad(b.End, "the end is behind the last that is listed: those are "+stretch(b.First, b.First+listed))
		}
		for _, n := range b.Logical {
			if uint64(n)*per+per > uint64(h.blocks) {
				return bad(uint64(n), "there are "+number(uint64(h.blocks)/per)+" logical blocks")
			}
		}
	}
	return nil
}

// knows reports whether the consumer has a layer for blocks of this group.
func (p *Plan) knows(group uint16) bool {
	if len(p.groups) == 0 || group == Shared {
		return false
	}
	_, found := slices.BinarySearch(p.groups, group)
	return found || p.groups[len(p.groups)-1] == Shared
}

// covered returns an error if the producer's lists lack a position of the consumer's lists. covered considers only
// groups that the producer has layers of; blocks of other groups belong to other stages.
func (p *Plan) covered(producer, consumer []Blocks) error {
	for i := range consumer {
		c := &consumer[i]
		if len(c.Logical) == 0 {
			continue
		}
		end := c.end(p.consumer.perLogical)
		own, has := listOf(producer, c.Group), "nothing"
		if own != nil && len(own.Logical) > 0 {
			ownEnd := own.end(p.producer.perLogical)
			if own.First <= c.First && ownEnd >= end {
				continue
			}
			has = stretch(own.First, ownEnd)
		}
		if !slices.ContainsFunc(p.layers, func(x route) bool { return x.group == c.Group || x.group == Shared }) {
			continue
		}
		return of("consumer", refuse(Uncovered, "blocks of group "+number(uint64(c.Group)), stretch(c.First, end),
			"the producer has "+has))
	}
	return nil
}

// listOf returns the list of a group, or nil.
func listOf(lists []Blocks, group uint16) *Blocks {
	for i := range lists {
		if lists[i].Group == group {
			return &lists[i]
		}
	}
	return nil
}

// stretch formats a range of positions in kernel blocks, with the last position included.
func stretch(first, end uint64) string {
	return "kernel blocks " + number(first) + " to " + number(end-1)
}
