package geometry

import (
	"slices"
	"strings"
)

// A Named is a layer with its KV-cache group, as this side knows it.
type Named struct {
	Layer string
	Group uint16
}

// A Joined is a pair of a producer rank and a consumer rank that fit each other. Producer and Consumer number the pages
// in the same way as the plan. The consumer's pages are the same for every stage of the producer's engine.
type Joined struct {
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
func Join(producer, consumer *Regions, layers []Named) (Joined, error) {
	if producer.EngineID == consumer.EngineID {
		return Joined{}, of("producer", refuse(Mismatch, "engine_id", quote([]byte(producer.EngineID)),
			"the consumer has the same: give each engine its own"))
	}
	if producer.Heads > 0 && producer.Layout != consumer.Layout {
		return Joined{}, of("producer", refuse(Mismatch, "kv_cache_layout", quote([]byte(producer.Layout)),
			"the consumer has "+quote([]byte(consumer.Layout))))
	}
	if producer.BlockTokens != consumer.BlockTokens {
		return Joined{}, of("producer", refuse(Mismatch, "block_size", number(uint64(producer.BlockTokens)),
			"the consumer has "+number(uint64(consumer.BlockTokens))))
	}
	j := Joined{Producer: *producer, Consumer: *consumer}
	var err error
	switch {
	case producer.Stages <= 1:
		err = j.byOrder(0)
	case len(producer.members) > 0 || len(consumer.members) > 0:
		err = j.byLayer(layers)
	default:
		err = j.bySlice()
	}
	if err != nil {
		return Joined{}, err
	}
	if j.Plan, err = Match(&j.Producer.Geometry, &j.Consumer.Geometry); err != nil {
		return Joined{}, err
	}
	if err := j.bytes(); err != nil {
		return Joined{}, err
	}
	return j, nil
}

// byOrder pairs the producer's regions with the consumer's regions from index from on.
func (j *Joined) byOrder(from int) error {
	p, c := &j.Producer, &j.Consumer
	if have, want := len(p.Spans), len(c.Spans)-from; have > want || p.Stages <= 1 && have < want {
		return of("producer", refuse(Mismatch, "kv_caches_base_addr", number(uint64(have)), "the consumer has "+
			number(uint64(want))+" regions"))
	}
	p.Layers = slices.Clone(p.Layers)
	for i := range p.Spans {
		p.Layers[i].Number = uint32(from + i)
		if ours, theirs := p.Spans[i].Name, c.Spans[from+i].Name; p.named && c.named && ours != theirs {
			return of("producer", refuse(Mismatch, at("region_names", i), quote([]byte(ours)), "the consumer has "+
				quote([]byte(theirs))))
		}
	}
	return nil
}

// bySlice finds the producer's regions among the consumer's regions by name. The regions of a stage are contiguous at
// the consumer, and must occur there exactly once.
func (j *Joined) bySlice() error {
	p, c := &j.Producer, &j.Consumer
	if !p.named || !c.named {
		side := "producer"
		if p.named {
			side = "consumer"
		}
		return of(side, refuse(Unsupported, "region_names", "nil", "want names: the producer has stages"))
	}
	from := -1
	for i := 0; i+len(p.Spans) <= len(c.Spans); i++ {
		if !slices.EqualFunc(p.Spans, c.Spans[i:i+len(p.Spans)], func(a, b Span) bool { return a.Name == b.Name }) {
			continue
		}
		if from >= 0 {
			return of("consumer", refuse(Unusable, "region_names", quote([]byte(p.Spans[0].Name)),
				"the stage's regions are there more than once: want names of their own"))
		}
		from = i
	}
	if from < 0 {
		return of("producer", refuse(Mismatch, "region_names", quote([]byte(p.Spans[0].Name)),
			"the consumer has no "+number(uint64(len(p.Spans)))+" regions of these names, one after the other"))
	}
	return j.byOrder(from)
}

// byLayer splits the regions of both sides into their layers, and numbers the layers as the consumer does.
func (j *Joined) byLayer(layers []Named) error {
	p, c := &j.Producer, &j.Consumer
	for _, x := range []struct {
		side string
		r    *Regions
	}{{"producer", p}, {"consumer", c}} {
		if len(x.r.members) == 0 || len(x.r.members) > LayersMax {
			return of(x.side, refuse(Unusable, "region_members", number(uint64(len(x.r.members))),
				"want the layers of each region, "+between(1, LayersMax)+": the producer has stages"))
		}
	}
	if c.Ranks > p.Ranks && p.Heads > 0 {
		return of("consumer", refuse(Unsupported, "ranks", number(uint64(c.Ranks)), "want at most the producer's "+
			number(uint64(p.Ranks))+" where layers are paired by name"))
	}
	layers = slices.Clone(layers)
	slices.SortFunc(layers, func(a, b Named) int { return strings.Compare(a.Layer, b.Layer) })
	names := c.byName()
	theirs := *c
	if err := c.cut(layers, func(i int) (uint32, bool) { return uint32(i), true }); err != nil {
		return of("consumer", err)
	}
	err := p.cut(layers, func(i int) (uint32, bool) {
		n, found := theirs.memberAt(names, p.members[i].layer)
		return uint32(n), found
	})
	return of("producer", err)
}

// cut replaces each region by one region for each of its layers. The layers of a packed region get a part of each block
// of the region.
func (r *Regions) cut(layers []Named, numbered func(member int) (uint32, bool)) error {
	packed := make([]bool, len(r.Spans))
	for i := range r.members {
		x := &r.members[i]
		packed[x.region] = packed[x.region] || x.packed
	}
	spans, cut := make([]Span, 0, len(r.members)), make([]Layer, 0, len(r.members))
	for i := range r.members {
		x := &r.members[i]
		n, found := numbered(i)
		if !found {
			return refuse(Mismatch, "region_members", quote([]byte(x.layer)), "the consumer has no such layer")
		}
		group, err := groupOf(layers, x.layer, r.Layers[x.region].Group)
		if err != nil {
			return err
		}
		s := r.Spans[x.region]
		s.Name = x.layer
		if packed[x.region] {
			if !x.packed {
				return refuse(Unusable, "packed_member_layouts", quote([]byte(x.layer)),
					"is not there, and others of its row are: want all or none")
			}
			s.Base, s.Length = s.Base+x.offset, x.bytes
		}
		spans, cut = append(spans, s), append(cut, Layer{Number: n, Group: group})
	}
	r.Spans, r.Layers, r.members, r.named = spans, cut, nil, true
	return nil
}

// groupOf returns the group of a layer: the group of the layer's region, or, if that is Shared, the group in layers,
// which are sorted by name.
func groupOf(layers []Named, name string, region uint16) (uint16, error) {
	i, found := slices.BinarySearchFunc(layers, name, func(x Named, name string) int {
		return strings.Compare(x.Layer, name)
	})
	switch {
	case found && region != Shared && layers[i].Group != region:
		return 0, refuse(Mismatch, "region_group_ids", groupName(region), "layer "+quote([]byte(name))+
			" is of group "+groupName(layers[i].Group))
	case found:
		return layers[i].Group, nil
	case region == Shared:
		return 0, refuse(Unsupported, "region_group_ids", "-1", "want the group of layer "+quote([]byte(name))+
			": its region is of all groups")
	}
	return region, nil
}

// bytes returns an error if two pages that are paired have different lengths.
func (j *Joined) bytes() error {
	p, c := &j.Producer, &j.Consumer
	for i := range j.Plan.layers {
		x := &j.Plan.layers[i]
		if ours, theirs := p.cellBytes(x.producer), c.cellBytes(x.consumer); ours != theirs {
			return of("producer", refuse(Mismatch, at("block_lens", int(x.producer)), number(p.Spans[x.producer].Length),
				"want "+number(theirs*uint64(p.Shares()))+", as the consumer has "+number(c.Spans[x.consumer].Length)))
		}
	}
	return nil
}

// Siblings checks whether two workers can be ranks of the same engine: a producer uses the same block lists for all
// ranks of an engine. Siblings returns nil or an *Error.
func Siblings(one, other *Regions) error {
	for _, x := range []struct {
		field    string
		is, want uint64
	}{
		{"num_blocks", uint64(other.Blocks), uint64(one.Blocks)},
		{"block_size", uint64(other.BlockTokens), uint64(one.BlockTokens)},
		{"physical_blocks_per_logical_kv_block", uint64(other.PerLogical), uint64(one.PerLogical)},
		{"ranks", uint64(other.Ranks), uint64(one.Ranks)},
		{"stages", uint64(other.Stages), uint64(one.Stages)},
	} {
		if x.is != x.want {
			return refuse(Mismatch, x.field, number(x.is), "another rank of the engine has "+number(x.want))
		}
	}
	if one.EngineID != other.EngineID {
		return refuse(Mismatch, "engine_id", quote([]byte(other.EngineID)), "another rank of the engine has "+
			quote([]byte(one.EngineID)))
	}
	return nil
}
