package geometry

import (
	"slices"
	"strings"
)

// A LayerGroup is a layer with its KV-cache group, as this side knows it.
type LayerGroup struct {
	Layer string
	Group uint16
}

// A RankPair is a pair of a producer rank and a consumer rank that fit each other. Producer and Consumer number the
// pages in the same way as the plan. The consumer's pages are the same for every stage of the producer's engine.
type RankPair struct {
	Plan               Plan
	Producer, Consumer Regions
}

// Join pairs the regions of two workers. If the producer has one stage, regions are paired by their order. If the
// producer has several stages, regions are paired by their names, or by the names of their layers if the workers say
// which layers the regions have.
//
// layers has the groups of layers that the caller knows, in any order. A layer must be listed if the layer's region has
// the group Shared; a listed group must agree with the group of the region. Join refuses what does not fit with an
// *Error that names the field as the wire does.
func Join(producer, consumer *Regions, layers []LayerGroup) (RankPair, error) {
	if producer.EngineID == consumer.EngineID {
		return RankPair{}, withSide("producer", newError(Mismatch, "engine_id", quoteText([]byte(producer.EngineID)),
			"the consumer has the same: give each engine its own"))
	}
	if producer.Heads > 0 && producer.Layout != consumer.Layout {
		return RankPair{}, withSide("producer", newError(Mismatch, "kv_cache_layout", quoteText([]byte(producer.Layout)),
			"the consumer has "+quoteText([]byte(consumer.Layout))))
	}
	if producer.BlockTokens != consumer.BlockTokens {
		return RankPair{}, withSide("producer", newError(Mismatch, "block_size", formatNumber(uint64(producer.BlockTokens)),
			"the consumer has "+formatNumber(uint64(consumer.BlockTokens))))
	}
	j := RankPair{Producer: *producer, Consumer: *consumer}
	var err error
	switch {
	case producer.Stages <= 1:
		err = j.pairByOrder(0)
	case len(producer.members) > 0 || len(consumer.members) > 0:
		err = j.pairByLayer(layers)
	default:
		err = j.pairByName()
	}
	if err != nil {
		return RankPair{}, err
	}
	if j.Plan, err = MatchRanks(&j.Producer.Geometry, &j.Consumer.Geometry); err != nil {
		return RankPair{}, err
	}
	if err := j.checkPageLengths(); err != nil {
		return RankPair{}, err
	}
	return j, nil
}

// pairByOrder pairs the producer's regions with the consumer's regions from index from on.
func (j *RankPair) pairByOrder(from int) error {
	p, c := &j.Producer, &j.Consumer
	if have, want := len(p.Spans), len(c.Spans)-from; have > want || p.Stages <= 1 && have < want {
		return withSide("producer", newError(Mismatch, "kv_caches_base_addr", formatNumber(uint64(have)), "the consumer has "+
			formatNumber(uint64(want))+" regions"))
	}
	p.Layers = slices.Clone(p.Layers)
	for i := range p.Spans {
		p.Layers[i].Number = uint32(from + i)
		if producerName, consumerName := p.Spans[i].Name, c.Spans[from+i].Name; p.hasNames && c.hasNames && producerName != consumerName {
			return withSide("producer", newError(Mismatch, elementName("region_names", i), quoteText([]byte(producerName)), "the consumer has "+
				quoteText([]byte(consumerName))))
		}
	}
	return nil
}

// pairByName finds the producer's regions among the consumer's regions by name. The regions of a stage are contiguous
// at the consumer, and must occur there exactly once.
func (j *RankPair) pairByName() error {
	p, c := &j.Producer, &j.Consumer
	if !p.hasNames || !c.hasNames {
		side := "producer"
		if p.hasNames {
			side = "consumer"
		}
		return withSide(side, newError(Unsupported, "region_names", "nil", "want names: the producer has stages"))
	}
	from := -1
	for i := 0; i+len(p.Spans) <= len(c.Spans); i++ {
		if !slices.EqualFunc(p.Spans, c.Spans[i:i+len(p.Spans)], func(a, b Span) bool { return a.Name == b.Name }) {
			continue
		}
		if from >= 0 {
			return withSide("consumer", newError(Unusable, "region_names", quoteText([]byte(p.Spans[0].Name)),
				"the stage's regions are there more than once: want names of their own"))
		}
		from = i
	}
	if from < 0 {
		return withSide("producer", newError(Mismatch, "region_names", quoteText([]byte(p.Spans[0].Name)),
			"the consumer has no "+formatNumber(uint64(len(p.Spans)))+" regions of these names, one after the other"))
	}
	return j.pairByOrder(from)
}

// pairByLayer splits the regions of both sides into their layers, and numbers the layers as the consumer does.
func (j *RankPair) pairByLayer(layers []LayerGroup) error {
	p, c := &j.Producer, &j.Consumer
	for _, x := range []struct {
		side string
		r    *Regions
	}{{"producer", p}, {"consumer", c}} {
		if len(x.r.members) == 0 || len(x.r.members) > LayersMax {
			return withSide(x.side, newError(Unusable, "region_members", formatNumber(uint64(len(x.r.members))),
				"want the layers of each region, "+formatLimits(1, LayersMax)+": the producer has stages"))
		}
	}
	if c.Ranks > p.Ranks && p.Heads > 0 {
		return withSide("consumer", newError(Unsupported, "ranks", formatNumber(uint64(c.Ranks)), "want at most the producer's "+
			formatNumber(uint64(p.Ranks))+" where layers are paired by name"))
	}
	layers = slices.Clone(layers)
	slices.SortFunc(layers, func(a, b LayerGroup) int { return strings.Compare(a.Layer, b.Layer) })
	names := c.membersByName()
	consumerMembers := *c
	if err := c.splitByLayer(layers, func(i int) (uint32, bool) { return uint32(i), true }); err != nil {
		return withSide("consumer", err)
	}
	err := p.splitByLayer(layers, func(i int) (uint32, bool) {
		n, found := consumerMembers.findMember(names, p.members[i].layer)
		return uint32(n), found
	})
	return withSide("producer", err)
}

// splitByLayer replaces each region by one region for each of its layers. The layers of a packed region get a part of
// each block of the region.
func (r *Regions) splitByLayer(layers []LayerGroup, layerNumber func(member int) (uint32, bool)) error {
	packed := make([]bool, len(r.Spans))
	for i := range r.members {
		x := &r.members[i]
		packed[x.region] = packed[x.region] || x.packed
	}
	spans, cut := make([]Span, 0, len(r.members)), make([]Layer, 0, len(r.members))
	for i := range r.members {
		x := &r.members[i]
		n, found := layerNumber(i)
		if !found {
			return newError(Mismatch, "region_members", quoteText([]byte(x.layer)), "the consumer has no such layer")
		}
		group, err := groupOf(layers, x.layer, r.Layers[x.region].Group)
		if err != nil {
			return err
		}
		s := r.Spans[x.region]
		s.Name = x.layer
		if packed[x.region] {
			if !x.packed {
				return newError(Unusable, "packed_member_layouts", quoteText([]byte(x.layer)),
					"is not there, and others of its row are: want all or none")
			}
			s.Base, s.Length = s.Base+x.offset, x.bytes
		}
		spans, cut = append(spans, s), append(cut, Layer{Number: n, Group: group})
	}
	r.Spans, r.Layers, r.members, r.hasNames = spans, cut, nil, true
	return nil
}

// groupOf returns the group of a layer: the group of the layer's region, or, if that is Shared, the group in layers,
// which are sorted by name.
func groupOf(layers []LayerGroup, name string, region uint16) (uint16, error) {
	i, found := slices.BinarySearchFunc(layers, name, func(x LayerGroup, name string) int {
		return strings.Compare(x.Layer, name)
	})
	switch {
	case found && region != Shared && layers[i].Group != region:
		return 0, newError(Mismatch, "region_group_ids", groupName(region), "layer "+quoteText([]byte(name))+
			" is of group "+groupName(layers[i].Group))
	case found:
		return layers[i].Group, nil
	case region == Shared:
		return 0, newError(Unsupported, "region_group_ids", "-1", "want the group of layer "+quoteText([]byte(name))+
			": its region is of all groups")
	}
	return region, nil
}

// checkPageLengths returns an error if two pages that are paired have different lengths.
func (j *RankPair) checkPageLengths() error {
	p, c := &j.Producer, &j.Consumer
	for i := range j.Plan.layers {
		x := &j.Plan.layers[i]
		if producerBytes, consumerBytes := p.regionCellBytes(x.producer), c.regionCellBytes(x.consumer); producerBytes != consumerBytes {
			return withSide("producer", newError(Mismatch, elementName("block_lens", int(x.producer)), formatNumber(p.Spans[x.producer].Length),
				"want "+formatNumber(consumerBytes*uint64(p.SharesPerBlock()))+", as the consumer has "+formatNumber(c.Spans[x.consumer].Length)))
		}
	}
	return nil
}

// CheckSiblings checks whether two workers can be ranks of the same engine: a producer uses the same block lists for
// all ranks of an engine. CheckSiblings returns nil or an *Error.
func CheckSiblings(first, second *Regions) error {
	for _, x := range []struct {
		field    string
		is, want uint64
	}{
		{"num_blocks", uint64(second.Blocks), uint64(first.Blocks)},
		{"block_size", uint64(second.BlockTokens), uint64(first.BlockTokens)},
		{"physical_blocks_per_logical_kv_block", uint64(second.PerLogical), uint64(first.PerLogical)},
		{"ranks", uint64(second.Ranks), uint64(first.Ranks)},
		{"stages", uint64(second.Stages), uint64(first.Stages)},
	} {
		if x.is != x.want {
			return newError(Mismatch, x.field, formatNumber(x.is), "another rank of the engine has "+formatNumber(x.want))
		}
	}
	if first.EngineID != second.EngineID {
		return newError(Mismatch, "engine_id", quoteText([]byte(second.EngineID)), "another rank of the engine has "+
			quoteText([]byte(first.EngineID)))
	}
	return nil
}
