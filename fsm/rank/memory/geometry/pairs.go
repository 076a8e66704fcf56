package geometry

import "iter"

// Pairs is a sequence of pairs of pages: the bytes of the producer's page are copied into the consumer's page. Pairs
// reads the block lists and the plan that it was made of, which must not change meanwhile.
type Pairs struct {
	plan               *Plan
	producer, consumer []Blocks
}

// Pages is the sequence of the consumer's pages in the order of Pairs.
type Pages struct{ pairs Pairs }

// PairBlocks pairs, by position, the blocks that a producer has of a request with the blocks that a consumer wants. The
// order is the consumer's: by group, region, block and share. Blocks that only the producer has are left out. A
// position that only the consumer has is an error that names both ranges, if the producer has layers of the group. The
// error is an *Error, and is the same for every producer rank of a stage, whether the rank writes anything or not.
func (p *Plan) PairBlocks(producer, consumer []Blocks) (Pairs, error) {
	if err := p.checkLists(&p.producer, "producer", producer); err != nil {
		return Pairs{}, err
	}
	if err := p.checkLists(&p.consumer, "consumer", consumer); err != nil {
		return Pairs{}, err
	}
	if err := p.checkCovered(producer, consumer); err != nil {
		return Pairs{}, err
	}
	return Pairs{plan: p, producer: producer, consumer: consumer}, nil
}

// ConsumerPages returns the pages of these blocks that this producer rank writes, which are the pages that the consumer
// grants to this rank. The error is an *Error.
func (p *Plan) ConsumerPages(consumer []Blocks) (Pages, error) {
	if err := p.checkLists(&p.consumer, "consumer", consumer); err != nil {
		return Pages{}, err
	}
	return Pages{Pairs{plan: p, consumer: consumer}}, nil
}

// CountPages returns the number of pages of these blocks that this producer rank writes. CountPages fails when
// ConsumerPages fails.
func (p *Plan) CountPages(consumer []Blocks) (uint64, error) {
	pages, err := p.ConsumerPages(consumer)
	return pages.Len(), err
}

// Len returns the number of pairs.
func (x Pairs) Len() uint64 {
	n := uint64(0)
	for i := range x.consumer {
		for at := range x.plan.layers {
			n += x.countCells(&x.consumer[i], &x.plan.layers[at])
		}
	}
	return n
}

// All yields the producer's page and the consumer's page of each pair.
func (x Pairs) All() iter.Seq2[uint32, uint32] { return x.AllFrom(0) }

// AllFrom yields what All yields without the first skip pairs, at no cost for these. A caller that moves some pairs at
// a time goes on in this way.
func (x Pairs) AllFrom(skip uint64) iter.Seq2[uint32, uint32] {
	return func(yield func(producer, consumer uint32) bool) { x.walkPairs(skip, yield) }
}

// Len returns the number of pages.
func (x Pages) Len() uint64 { return x.pairs.Len() }

// All yields the pages.
func (x Pages) All() iter.Seq[uint32] { return x.AllFrom(0) }

// AllFrom yields what All yields without the first skip pages.
func (x Pages) AllFrom(skip uint64) iter.Seq[uint32] {
	return func(yield func(page uint32) bool) {
		x.pairs.walkPairs(skip, func(_, page uint32) bool { return yield(page) })
	}
}

// countCells returns the number of pages of a list's blocks that are written in a layer.
func (x *Pairs) countCells(c *Blocks, at *layerRoute) uint64 {
	if at.group != c.Group && at.group != Shared {
		return 0
	}
	return (c.endPosition(x.plan.consumer.perLogical) - c.First) * uint64(x.plan.shares)
}

// walkPairs calls yield for each pair after the first skip, until yield returns false. Without block lists of the
// producer, the producer's pages are 0.
func (x *Pairs) walkPairs(skip uint64, yield func(producer, consumer uint32) bool) {
	for i := range x.consumer {
		c := &x.consumer[i]
		producerList := listOfGroup(x.producer, c.Group)
		for at := range x.plan.layers {
			layer := &x.plan.layers[at]
			n := x.countCells(c, layer)
			if skip >= n {
				skip -= n
				continue
			}
			if !x.walkLayer(producerList, c, layer, skip, yield) {
				return
			}
			skip = 0
		}
	}
}

// walkLayer is the part of walk for one list in one layer. walkLayer returns false if yield has returned false.
func (x *Pairs) walkLayer(producerList, c *Blocks, at *layerRoute, skip uint64, yield func(producer, consumer uint32) bool) bool {
	p := x.plan
	end := c.endPosition(p.consumer.perLogical)
	share := uint32(skip % uint64(p.shares))
	for position := c.First + skip/uint64(p.shares); position < end; position++ {
		consumerBlock, producerBlock := p.consumer.blockAt(c, position), uint32(0)
		if producerList != nil {
			producerBlock = p.producer.blockAt(producerList, position)
		}
		for ; share < p.shares; share++ {
			page := uint32(0)
			if producerList != nil {
				page = p.producer.pageNumber(at.producer, producerBlock, share)
			}
			if !yield(page, p.consumer.pageNumber(at.consumer, consumerBlock, share)) {
				return false
			}
		}
		share = 0
	}
	return true
}
