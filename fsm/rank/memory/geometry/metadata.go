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

// contiguousHeads is the suffix of the layouts in which the heads of a block follow each other, each head contiguous.
const contiguousHeads = "HNC"

// ParseRegions reads a worker's regions from its metadata, which is not kept. ParseRegions checks this side alone, and
// refuses values that are impossible or not supported with an *Error that names the field as the wire does. Join checks
// whether two sides fit.
func ParseRegions(m *protocol.NixlMetadata, w *Worker) (Regions, error) {
	if err := checkSupported(m); err != nil {
		return Regions{}, err
	}
	if err := checkListLengths(m); err != nil {
		return Regions{}, err
	}
	r := Regions{
		Geometry: Geometry{Ranks: w.Ranks, Rank: w.Rank, Stages: w.Stages, Stage: w.Stage, Heads: w.Heads,
			CellHeads: w.CellHeads, Blocks: uint32(m.NumBlocks), PerLogical: uint32(m.PerLogical),
			BlockTokens: uint32(m.BlockSize)},
		EngineID: string(m.EngineID), Layout: string(m.Layout), Device: m.DeviceID, hasNames: m.Regions.HasNames,
	}
	if err := r.takeRegions(m); err != nil {
		return Regions{}, err
	}
	if err := r.Check(); err != nil {
		return Regions{}, err
	}
	if err := r.checkSplits(); err != nil {
		return Regions{}, err
	}
	return r, r.takeMembers(m)
}

// checkSupported refuses metadata of caches that this package cannot move.
func checkSupported(m *protocol.NixlMetadata) error {
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
			return newError(Unsupported, x.field, formatNumber(x.is), "want "+formatNumber(x.most))
		}
	}
	if m.HasPLE {
		return newError(Unsupported, "ple_block_len", formatNumber(m.PLEBlockLen), "want nil: per-layer embeddings are not moved")
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
			return newError(Unusable, x.field, formatNumber(x.is), "want "+formatLimits(1, x.most))
		}
	}
	if s := string(m.Layout); strings.Contains(s, " ") || !strings.Contains(layouts, " "+s+" ") {
		return newError(Unsupported, "kv_cache_layout", quoteText(m.Layout), "want one of"+strings.TrimSuffix(layouts, " "))
	}
	return nil
}

// checkListLengths returns an error if the lists that have an element for each region differ in length.
func checkListLengths(m *protocol.NixlMetadata) error {
	regions := len(m.BaseAddrs)
	if regions == 0 || regions > LayersMax {
		return newError(Unusable, "kv_caches_base_addr", formatNumber(uint64(regions)), "want "+formatLimits(1, LayersMax)+" addresses")
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
			return newError(Unusable, x.field, formatNumber(uint64(x.is)),
				"want "+formatNumber(uint64(regions))+", as many as kv_caches_base_addr")
		}
	}
	return nil
}

// takeRegions makes a layer and a span of each region. Without group ids all regions belong to group 0, so that block
// lists of another group are refused and not mistaken for group 0.
func (r *Regions) takeRegions(m *protocol.NixlMetadata) error {
	g := &m.Regions
	for i, base := range m.BaseAddrs {
		s := Span{Base: base, Stride: m.BlockStrides[i], Length: m.BlockLens[i]}
		layer := Layer{Number: uint32(i)}
		switch hi, last := bits.Mul64(s.Stride, m.NumBlocks-1); {
		case s.Length == 0:
			return newError(Unusable, elementName("block_lens", i), "0", "want a block's bytes")
		case s.Stride < s.Length:
			return newError(Unusable, elementName("block_strides", i), formatNumber(s.Stride), "want "+formatNumber(s.Length)+
				" at least, as block_lens has: blocks overlap")
		case hi > 0, last > math.MaxUint64-s.Length, base > math.MaxUint64-s.Length-last:
			return newError(Unusable, elementName("kv_caches_base_addr", i), formatNumber(base), "its last block is beyond 64 bits")
		case g.HasNumBlocks && g.NumBlocks[i] != m.NumBlocks:
			return newError(Unsupported, elementName("region_num_blocks", i), formatNumber(g.NumBlocks[i]), "want "+formatNumber(m.NumBlocks)+
				", as num_blocks has")
		}
		if g.HasGroupIDs {
			switch id := g.GroupIDs[i]; {
			case id == -1:
				layer.Group = Shared
			case id < 0 || id >= Shared:
				return newError(Unusable, elementName("region_group_ids", i), strconv.FormatInt(id, 10), "want -1 to 65534")
			default:
				layer.Group = uint16(id)
			}
		}
		if g.HasNames {
			s.Name = string(g.Names[i])
		}
		if g.HasMemTypes {
			if err := r.takeMemoryKind(i, g.MemTypes[i]); err != nil {
				return err
			}
		}
		r.Spans, r.Layers = append(r.Spans, s), append(r.Layers, layer)
	}
	return nil
}

// takeMemoryKind records the kind of memory of a region, which must be the same for all regions.
func (r *Regions) takeMemoryKind(i int, name []byte) error {
	var mem Mem
	switch string(name) {
	case "VRAM":
		mem = MemVRAM
	case "DRAM":
		mem = MemDRAM
	default:
		return newError(Unsupported, elementName("region_mem_types", i), quoteText(name), "want VRAM or DRAM")
	}
	if r.Mem != MemUnknown && r.Mem != mem {
		return newError(Unsupported, elementName("region_mem_types", i), quoteText(name), "want "+r.Mem.String()+
			", as the others are: memory of one kind")
	}
	r.Mem = mem
	return nil
}

// checkSplits returns an error if blocks are divided into several pages and such a page is not contiguous in memory.
func (r *Regions) checkSplits() error {
	shares := uint64(r.SharesPerBlock())
	if shares == 1 {
		return nil
	}
	if !strings.HasSuffix(r.Layout, contiguousHeads) {
		return newError(Unsupported, "kv_cache_layout", quoteText([]byte(r.Layout)), "want LBHNC or BLHNC where heads are split: "+
			formatNumber(uint64(r.headsPerRank()))+" of a rank into cells of "+formatNumber(uint64(r.CellHeads)))
	}
	for i := range r.Spans {
		if n := r.Spans[i].Length; n%shares != 0 {
			return newError(Unusable, elementName("block_lens", i), formatNumber(n), "want a multiple of "+formatNumber(shares)+", its cells")
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
	byName := r.membersByName()
	for i := 1; i < len(byName); i++ {
		if x := &r.members[byName[i]]; x.layer == r.members[byName[i-1]].layer {
			*r = Regions{}
			return newError(Unusable, "region_members", quoteText([]byte(x.layer)), "is there twice: want each layer in one region")
		}
	}
	for i := range m.Packed {
		x := &m.Packed[i]
		if err := r.packMember(x, byName); err != nil {
			*r = Regions{}
			return err
		}
	}
	return nil
}

// packMember records which part of a packed region's block a layer has.
func (r *Regions) packMember(x *protocol.NixlPackedMember, byName []int) error {
	const field = "packed_member_layouts"
	i, found := r.findMember(byName, string(x.Layer))
	if !found {
		return newError(Unusable, field, quoteText(x.Layer), "region_members has no such layer")
	}
	switch length := r.Spans[r.members[i].region].Length; {
	case r.Heads > 0:
		return newError(Unsupported, field, quoteText(x.Layer), "want none where heads is not 0: only latents are packed")
	case x.PageBytes == 0 || x.Offset >= length || x.PageBytes > length-x.Offset:
		return newError(Unusable, field, quoteText(x.Layer), "want a page within the row's "+formatNumber(length)+" bytes, not "+
			formatNumber(x.PageBytes)+" from "+formatNumber(x.Offset)+" on")
	}
	r.members[i].packed, r.members[i].offset, r.members[i].bytes = true, x.Offset, x.PageBytes
	return nil
}

// membersByName returns the indexes of the members in the order of their names.
func (r *Regions) membersByName() []int {
	order := make([]int, len(r.members))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return strings.Compare(r.members[a].layer, r.members[b].layer) })
	return order
}

// findMember returns the index of the member with a name, and false if there is none. byName is the result of
// membersByName.
func (r *Regions) findMember(byName []int, name string) (int, bool) {
	i, found := slices.BinarySearchFunc(byName, name, func(i int, name string) int {
		return strings.Compare(r.members[i].layer, name)
	})
	if !found {
		return 0, false
	}
	return byName[i], true
}

// elementName formats the name of an element of a list.
func elementName(field string, i int) string { return field + "[" + strconv.Itoa(i) + "]" }

// quoteMax is the largest number of bytes of a peer's text in an error.
const quoteMax = 64

// quoteText quotes a peer's text, at most quoteMax bytes.
func quoteText(b []byte) string { return strconv.Quote(string(b[:min(len(b), quoteMax)])) }
