package geometry

import "iter"

// Pairs are pages that belong to each other: the first one's bytes go into the second one. They read the lists and the
// plan that they were made of, which stay as they are meanwhile.
type Pairs struct {
	plan               *Plan
	producer, consumer []Blocks
}

// Pages are a consumer's pages in the order of Pairs.
type Pages struct{ pairs Pairs }

// Pairs pairs the blocks that a producer has of a request with those that a consumer wants, by position: in the
// consumer's order, which is by group, region, block and share. Blocks that only the producer has are left out; a
// position that only the consumer has, of a group that the producer has layers of, is an error that names both
// stretches. The error is an *Error, and the same for every producer rank of a stage, whether it writes or not.
func (p *Plan) Pairs(producer, consumer []Blocks) (Pairs, error) {
	if err := p.check(&p.producer, "producer", producer); err != nil {
		return Pairs{}, err
	}
	if err := p.check(&p.consumer, "consumer", consumer); err != nil {
		return Pairs{}, err
	}
	if err := p.covered(producer, consumer); err != nil {
		return Pairs{}, err
	}
	return Pairs{plan: p, producer: producer, consumer: consumer}, nil
}

// ConsumerPages are the pages of these blocks that this producer rank writes: those that the consumer grants to it.
func (p *Plan) ConsumerPages(consumer []Blocks) (Pages, error) {
	if err := p.check(&p.consumer, "consumer", consumer); err != nil {
		return Pages{}, err
	}
	return Pages{Pairs{plan: p, consumer: consumer}}, nil
}

// Count is how many pages of these blocks this producer rank writes. The error is that of ConsumerPages.
func (p *Plan) Count(consumer []Blocks) (uint64, error) {
	pages, err := p.ConsumerPages(consumer)
	return pages.Len(), err
}

// Len is how many pairs there are.
func (x Pairs) Len() uint64 {
	n := uint64(0)
	for i := range x.consumer {
		for at := range x.plan.layers {
			n += x.cells(&x.consumer[i], &x.plan.layers[at])
		}
	}
	return n
}

// All yields the producer's page and the consumer's, pair by pair.
func (x Pairs) All() iter.Seq2[uint32, uint32] { return x.From(0) }

// From yields what All does but the first so many, at no cost for these: who moves some at a time goes on there.
func (x Pairs) From(skip uint64) iter.Seq2[uint32, uint32] {
	return func(yield func(producer, consumer uint32) bool) { x.walk(skip, yield) }
}

// Len is how many pages there are.
func (x Pages) Len() uint64 { return x.pairs.Len() }

// All yields them.
func (x Pages) All() iter.Seq[uint32] { return x.From(0) }

// From yields what All does but the first so many.
func (x Pages) From(skip uint64) iter.Seq[uint32] {
	return func(yield func(page uint32) bool) {
		x.pairs.walk(skip, func(_, page uint32) bool { return yield(page) })
	}
}

// cells is how many pages of a list's blocks are written in a layer.
func (x *Pairs) cells(c *Blocks, at *route) uint64 {
	if at.group != c.Group && at.group != Shared {
		return 0
	}
	return (c.end(x.plan.consumer.perLogical) - c.First) * uint64(x.plan.shares)
}

// walk yields pairs until it is told not to. Without lists of the producer's its pages are 0.
func (x *Pairs) walk(skip uint64, yield func(producer, consumer uint32) bool) {
	for i := range x.consumer {
		c := &x.consumer[i]
		own := listOf(x.producer, c.Group)
		for at := range x.plan.layers {
			layer := &x.plan.layers[at]
			n := x.cells(c, layer)
			if skip >= n {
				skip -= n
				continue
			}
			if !x.layer(own, c, layer, skip, yield) {
				return
			}
			skip = 0
		}
	}
}

// layer walks what one list has in one layer.
func (x *Pairs) layer(own, c *Blocks, at *route, skip uint64, yield func(producer, consumer uint32) bool) bool {
	p := x.plan
	end := c.end(p.consumer.perLogical)
	share := uint32(skip % uint64(p.shares))
	for position := c.First + skip/uint64(p.shares); position < end; position++ {
		into, from := p.consumer.at(c, position), uint32(0)
		if own != nil {
			from = p.producer.at(own, position)
		}
		for ; share < p.shares; share++ {
			page := uint32(0)
			if own != nil {
				page = p.producer.page(at.producer, from, share)
			}
			if !yield(page, p.consumer.page(at.consumer, into, share)) {
				return false
			}
		}
		share = 0
	}
	return true
}
