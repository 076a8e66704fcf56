package geometry

import (
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/kvferry/kvferry/protocol"
)

// A Worker has the facts that a worker's metadata does not contain: the position of the worker in its engine, and the
// heads of the model. The fields have the same meaning as in Geometry.
type Worker struct {
	Ranks, Rank      uint32
	Stages, Stage    uint32
	Heads, CellHeads uint32
}

// layouts are the valid names of kv_cache_layout. L: layers, B: blocks, H: heads, N: tokens, C: the contents of a head.
const layouts = " LBHNC LBNHC LHBNC BLHNC BLNHC BHLNC "

// contiguous is the suffix of the layouts in which the heads of a block follow each other, each head contiguous.
const contiguous = "HNC"

// Of reads a worker's regions from its metadata, which is not kept. Of checks this side alone, and refuses values that
// are impossible or not supported with an *Error that names the field as the wire does. Join checks whether two sides
// fit.
func Of(m *protocol.NixlMetadata, w *Worker) (Regions, error) {
	if err := supported(m); err != nil {
		return Regions{}, err
	}
	if err := lists(m); err != nil {
		return Regions{}, err
	}
	r := Regions{
		Geometry: Geometry{Ranks: w.Ranks, Rank: w.Rank, Stages: w.Stages, Stage: w.Stage, Heads: w.Heads,
			CellHeads: w.CellHeads, Blocks: uint32(m.NumBlocks), PerLogical: uint32(m.PerLogical),
			BlockTokens: uint32(m.BlockSize)},
		EngineID: string(m.EngineID), Layout: string(m.Layout), Device: m.DeviceID, named: m.Regions.HasNames,
	}
	if err := r.take(m); err != nil {
		return Regions{}, err
	}
	if err := r.Check(); err != nil {
		return Regions{}, err
	}
	if err := r.splits(); err != nil {
		return Regions{}, err
	}
	return r, r.takeMembers(m)
}

// supported refuses metadata of caches that this package cannot move.
func supported(m *protocol.NixlMetadata) error {
	for _, x := range []struct {
		field           string
		is, least, most uint64
	}{
		{"pcp_size", m.PCPSize, 1, 1},
		{"dcp_size", m.DCPSize, 1, 1},
		{"ssm_sizes[0]", m.SSMSizes[0], 0, 0},
		{"ssm_sizes[1]", m.SSMSizes[1], 0, 0},
	} {
		if x.is != x.least {
			return refuse(Unsupported, x.field, number(x.is), "want "+number(x.most))
		}
	}
	if m.HasPLE {
		return refuse(Unsupported, "ple_block_len", number(m.PLEBlockLen), "want nil: per-layer embeddings are not moved")
	}
	for _, x := range []struct {
		field    string
		is, most uint64
	}{
		{"num_blocks", m.NumBlocks, math.MaxUint32},
		{"block_size", m.BlockSize, math.MaxUint32},
		{"physical_blocks_per_logical_kv_block", m.PerLogical, m.NumBlocks},
	} {
		if x.is == 0 || x.is > x.most {
			return refuse(Unusable, x.field, number(x.is), "want "+between(1, x.most))
		}
	}
	if s := string(m.Layout); strings.Contains(s, " ") || !strings.Contains(layouts, " "+s+" ") {
		return refuse(Unsupported, "kv_cache_layout", quote(m.Layout), "want one of"+strings.TrimSuffix(layouts, " "))
	}
	return nil
}

// lists returns an error if the lists that have an element for each region differ in length.
func lists(m *protocol.NixlMetadata) error {
	regions := len(m.BaseAddrs)
	if regions == 0 || regions > LayersMax {
		return refuse(Unusable, "kv_caches_base_addr", number(uint64(regions)), "want "+between(1, LayersMax)+" addresses")
	}
	g := &m.Regions
	for _, x := range []struct {
		field string
		is    int
		there bool
	}{
		{"block_lens", len(m.BlockLens), true},
		{"block_strides", len(m.BlockStrides), true},
		{"region_num_blocks", len(g.NumBlocks), g.HasNumBlocks},
		{"region_group_ids", len(g.GroupIDs), g.HasGroupIDs},
		{"region_names", len(g.Names), g.HasNames},
		{"region_mem_types", len(g.MemTypes), g.HasMemTypes},
		{"region_members", len(m.Members), len(m.Members) > 0},
	} {
		if x.there && x.is != regions {
			return refuse(Unusable, x.field, number(uint64(x.is)),
				"want "+number(uint64(regions))+", as many as kv_caches_base_addr")
		}
	}
	return nil
}

// take makes a layer and a span of each region. Without group ids all regions belong to group 0, so that block lists of
// another group are refused and not mistaken for group 0.
func (r *Regions) take(m *protocol.NixlMetadata) error {
	g := &m.Regions
	for i, base := range m.BaseAddrs {
		s := Span{Base: base, Stride: m.BlockStrides[i], Length: m.BlockLens[i]}
		layer := Layer{Number: uint32(i)}
		switch hi, last := bits.Mul64(s.Stride, m.NumBlocks-1); {
		case s.Length == 0:
			return refuse(Unusable, at("block_lens", i), "0", "want a block's bytes")
		case s.Stride < s.Length:
			return refuse(Unusable, at("block_strides", i), number(s.Stride), "want "+number(s.Length)+
				" at least, as block_lens has: blocks overlap")
		case hi > 0, last > math.MaxUint64-s.Length, base > math.MaxUint64-s.Length-last:
			return refuse(Unusable, at("kv_caches_base_addr", i), number(base), "its last block is beyond 64 bits")
		case g.HasNumBlocks && g.NumBlocks[i] != m.NumBlocks:
			return refuse(Unsupported, at("region_num_blocks", i), number(g.NumBlocks[i]), "want "+number(m.NumBlocks)+
				", as num_blocks has")
		}
		if g.HasGroupIDs {
			switch id := g.GroupIDs[i]; {
			case id == -1:
				layer.Group = Shared
			case id < 0 || id >= Shared:
				return refuse(Unusable, at("region_group_ids", i), strconv.FormatInt(id, 10), "want -1 to 65534")
			default:
				layer.Group = uint16(id)
			}
		}
		if g.HasNames {
			s.Name = string(g.Names[i])
		}
		if g.HasMemTypes {
			if err := r.takeMem(i, g.MemTypes[i]); err != nil {
				return err
			}
		}
		r.Spans, r.Layers = append(r.Spans, s), append(r.Layers, layer)
	}
	return nil
}

// takeMem records the kind of memory of a region, which must be the same for all regions.
func (r *Regions) takeMem(i int, name []byte) error {
	var mem Mem
	switch string(name) {
	case "VRAM":
		mem = MemVRAM
	case "DRAM":
		mem = MemDRAM
	default:
		return refuse(Unsupported, at("region_mem_types", i), quote(name), "want VRAM or DRAM")
	}
	if r.Mem != MemUnsaid && r.Mem != mem {
		return refuse(Unsupported, at("region_mem_types", i), quote(name), "want "+r.Mem.String()+
			", as the others are: memory of one kind")
	}
	r.Mem = mem
	return nil
}

// splits returns an error if blocks are divided into several pages and such a page is not contiguous in memory.
func (r *Regions) splits() error {
	shares := uint64(r.Shares())
	if shares == 1 {
		return nil
	}
	if !strings.HasSuffix(r.Layout, contiguous) {
		return refuse(Unsupported, "kv_cache_layout", quote([]byte(r.Layout)), "want LBHNC or BLHNC where heads are split: "+
			number(uint64(r.headsHere()))+" of a rank into cells of "+number(uint64(r.CellHeads)))
	}
	for i := range r.Spans {
		if n := r.Spans[i].Length; n%shares != 0 {
			return refuse(Unusable, at("block_lens", i), number(n), "want a multiple of "+number(shares)+", its cells")
		}
	}
	return nil
}

// takeMembers records which layers each region has, by the names of the layers.
func (r *Regions) takeMembers(m *protocol.NixlMetadata) error {
	for region, layers := range m.Members {
		for _, name := range layers {
			r.members = append(r.members, member{layer: string(name), region: uint32(region)})
		}
	}
	byName := r.byName()
	for i := 1; i < len(byName); i++ {
		if x := &r.members[byName[i]]; x.layer == r.members[byName[i-1]].layer {
			*r = Regions{}
			return refuse(Unusable, "region_members", quote([]byte(x.layer)), "is there twice: want each layer in one region")
		}
	}
	for i := range m.Packed {
		x := &m.Packed[i]
		if err := r.pack(x, byName); err != nil {
			*r = Regions{}
			return err
		}
	}
	return nil
}

// pack records which part of a packed region's block a layer has.
func (r *Regions) pack(x *protocol.NixlPackedMember, byName []int) error {
	const field = "packed_member_layouts"
	i, found := r.memberAt(byName, string(x.Layer))
	if !found {
		return refuse(Unusable, field, quote(x.Layer), "region_members has no such layer")
	}
	switch length := r.Spans[r.members[i].region].Length; {
	case r.Heads > 0:
		return refuse(Unsupported, field, quote(x.Layer), "want none where heads is not 0: only latents are packed")
	case x.PageBytes == 0 || x.Offset >= length || x.PageBytes > length-x.Offset:
		return refuse(Unusable, field, quote(x.Layer), "want a page within the row's "+number(length)+" bytes, not "+
			number(x.PageBytes)+" from "+number(x.Offset)+" on")
	}
	r.members[i].packed, r.members[i].offset, r.members[i].bytes = true, x.Offset, x.PageBytes
	return nil
}

// byName returns the indexes of the members in the order of their names.
func (r *Regions) byName() []int {
	order := make([]int, len(r.members))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return strings.Compare(r.members[a].layer, r.members[b].layer) })
	return order
}

// memberAt returns the index of the member with a name, and false if there is none. byName is the result of byName.
func (r *Regions) memberAt(byName []int, name string) (int, bool) {
	i, found := slices.BinarySearchFunc(byName, name, func(i int, name string) int {
		return strings.Compare(r.members[i].layer, name)
	})
	if !found {
		return 0, false
	}
	return byName[i], true
}

// at formats the name of an element of a list.
func at(field string, i int) string { return field + "[" + strconv.Itoa(i) + "]" }

// quoteMax is the largest number of bytes of a peer's text in an error.
const quoteMax = 64

// quote quotes a peer's text, at most quoteMax bytes.
func quote(b []byte) string { return strconv.Quote(string(b[:min(len(b), quoteMax)])) }
