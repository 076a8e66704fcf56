package protocol

import (
	"math/bits"
	"slices"
)

// NixlVersions are the versions of vLLM's NIXL connector whose messages these are, with the releases of vLLM that have
// them. What 15 has more than 14 concerns engines that pull alone.
const NixlVersions = "14 (vLLM 0.32) or 15 (vLLM 0.33)"

// A NixlMetadata is what a worker of vLLM's NIXL connector says of itself and its memory (NixlAgentMetadata of
// NixlVersions). Its blocks lie in regions, one for each view of an attention layer: a block is at BaseAddrs[region] plus
// its number times BlockStrides[region]. Units are bytes and tokens.
type NixlMetadata struct {
	EngineID     []byte
	Agent        []byte   // agent_metadata: libnixl's own, for who is to reach it
	BaseAddrs    []uint64 // kv_caches_base_addr: by region
	DeviceID     uint64
	NumBlocks    uint64   // kernel blocks
	BlockLens    []uint64 // by region
	BlockStrides []uint64 // by region
	Layout       []byte   // kv_cache_layout, as LBHNC
	BlockSize    uint64   // tokens of a kernel block
	SSMSizes     [2]uint64
	Backend      []byte // attn_backend_name
	PerLogical   uint64 // physical_blocks_per_logical_kv_block

	Regions NixlRegions

	DCPSize, PCPSize uint64 // 1 where they are absent
	HasPLE           bool   // ple_block_len is there
	PLEBlockLen      uint64

	Members [][][]byte         // region_members: by region the layers that are packed into its rows
	Packed  []NixlPackedMember // packed_member_layouts, in the order of the bytes

	// Missing is the first field that an engine of NixlVersions sends and that was not there, Unknown the first one that
	// was there and that it does not send; both are views. Such an engine sends every field, those with defaults too.
	Missing, Unknown []byte
}

// Foreign says in a few words how m differs from what engines of NixlVersions send, or nothing where it does not. The
// version itself is not on the wire.
func (m *NixlMetadata) Foreign() string {
	switch {
	case m.Missing != nil:
		return "an older one: it sends no " + string(m.Missing)
	case m.Unknown != nil:
		return "a newer one: it sends " + quote(m.Unknown)
	}
	return ""
}

// NixlRegions are lists by region, each of which may be nil on the wire: then Has says so, and it is empty.
type NixlRegions struct {
	NumBlocks []uint64 // region_num_blocks
	GroupIDs  []int64  // region_group_ids; -1: of all groups
	Names     [][]byte // region_names
	MemTypes  [][]byte // region_mem_types

	HasNumBlocks, HasGroupIDs, HasNames, HasMemTypes bool
}

// A NixlPackedMember says where in a row a layer's page is.
type NixlPackedMember struct {
	Layer             []byte
	Offset, PageBytes uint64
}

// Fields of NixlMetadata.
const (
	nixlEngineID = iota
	nixlAgent
	nixlBaseAddrs
	nixlDeviceID
	nixlNumBlocks
	nixlBlockLens
	nixlBlockStrides
	nixlLayout
	nixlBlockSize
	nixlSSMSizes
	nixlBackend
	nixlPerLogical
	nixlRegionNumBlocks
	nixlRegionGroupIDs
	nixlRegionNames
	nixlRegionMemTypes
	nixlDCPSize
	nixlPCPSize
	nixlPLEBlockLen
	nixlMembers
	nixlPacked
)

var nixlMetadataSchema = schema{
	name: "NixlAgentMetadata",
	names: []string{
		"engine_id", "agent_metadata", "kv_caches_base_addr", "device_id", "num_blocks", "block_lens", "block_strides",
		"kv_cache_layout", "block_size", "ssm_sizes", "attn_backend_name", "physical_blocks_per_logical_kv_block",
		"region_num_blocks", "region_group_ids", "region_names", "region_mem_types", "dcp_size", "pcp_size",
		"ple_block_len", "region_members", "packed_member_layouts",
	},
	required: 1<<(nixlPerLogical+1) - 1,
}

// Append appends the message to b, all 21 fields of it.
func (m *NixlMetadata) Append(b []byte) []byte {
	b = appendMapHeader(b, len(nixlMetadataSchema.names))
	b = appendStr(appendStr(b, "engine_id"), m.EngineID)
	b = appendBin(appendStr(b, "agent_metadata"), m.Agent)
	b = appendUints(b, "kv_caches_base_addr", m.BaseAddrs)
	b = appendUint(appendStr(b, "device_id"), m.DeviceID)
	b = appendUint(appendStr(b, "num_blocks"), m.NumBlocks)
	b = appendUints(b, "block_lens", m.BlockLens)
	b = appendUints(b, "block_strides", m.BlockStrides)
	b = appendStr(appendStr(b, "kv_cache_layout"), m.Layout)
	b = appendUint(appendStr(b, "block_size"), m.BlockSize)
	b = appendUints(b, "ssm_sizes", m.SSMSizes[:])
	b = appendStr(appendStr(b, "attn_backend_name"), m.Backend)
	b = appendUint(appendStr(b, "physical_blocks_per_logical_kv_block"), m.PerLogical)
	b = m.Regions.append(b)
	b = appendUint(appendStr(b, "dcp_size"), m.DCPSize)
	b = appendUint(appendStr(b, "pcp_size"), m.PCPSize)
	if b = appendStr(b, "ple_block_len"); m.HasPLE {
		b = appendUint(b, m.PLEBlockLen)
	} else {
		b = append(b, nilByte)
	}
	b = appendArrayHeader(appendStr(b, "region_members"), len(m.Members))
	for _, layers := range m.Members {
		b = appendTexts(b, layers)
	}
	b = appendMapHeader(appendStr(b, "packed_member_layouts"), len(m.Packed))
	for _, x := range m.Packed {
		b = appendUint(appendUint(appendArrayHeader(appendStr(b, x.Layer), 2), x.Offset), x.PageBytes)
	}
	return b
}

func (g *NixlRegions) append(b []byte) []byte {
	if g.HasNumBlocks {
		b = appendUints(b, "region_num_blocks", g.NumBlocks)
	} else {
		b = append(appendStr(b, "region_num_blocks"), nilByte)
	}
	if g.HasGroupIDs {
		b = appendInts(b, "region_group_ids", g.GroupIDs)
	} else {
		b = append(appendStr(b, "region_group_ids"), nilByte)
	}
	if g.HasNames {
		b = appendStrs(b, "region_names", g.Names)
	} else {
		b = append(appendStr(b, "region_names"), nilByte)
	}
	if g.HasMemTypes {
		return appendStrs(b, "region_mem_types", g.MemTypes)
	}
	return append(appendStr(b, "region_mem_types"), nilByte)
}

const nilByte = 0xc0

// Decode fills m from b; texts and Agent are views of it. It is as strict as the reference: fields up to
// physical_blocks_per_logical_kv_block are required, the others have their defaults, unknown ones are passed over, and
// numbers are integers. That lists by region are as long as each other is not looked at here. The error is a
// *DecodeError.
func (m *NixlMetadata) Decode(b []byte, lim *Limits) error {
	*m = NixlMetadata{
		BaseAddrs: m.BaseAddrs[:0], BlockLens: m.BlockLens[:0], BlockStrides: m.BlockStrides[:0], DCPSize: 1, PCPSize: 1,
		Members: m.Members[:0], Packed: m.Packed[:0],
		Regions: NixlRegions{NumBlocks: m.Regions.NumBlocks[:0], GroupIDs: m.Regions.GroupIDs[:0],
			Names: m.Regions.Names[:0], MemTypes: m.Regions.MemTypes[:0]},
	}
	r := open(b, lim)
	w := fields{r: &r, schema: &nixlMetadataSchema, depth: 2}
	for w.open(); w.next(); {
		switch w.at {
		case nixlEngineID:
			m.EngineID = r.text()
		case nixlAgent:
			m.Agent = r.binUpTo(r.lim.AgentBytes, "AgentBytes")
		case nixlLayout:
			m.Layout = r.text()
		case nixlBackend:
			m.Backend = r.text()
		case nixlBaseAddrs:
			m.BaseAddrs = r.uint64s(m.BaseAddrs)
		case nixlBlockLens:
			m.BlockLens = r.uint64s(m.BlockLens)
		case nixlBlockStrides:
			m.BlockStrides = r.uint64s(m.BlockStrides)
		case nixlRegionNumBlocks, nixlRegionGroupIDs, nixlRegionNames, nixlRegionMemTypes:
			m.Regions.decode(&r, w.at)
		case nixlMembers:
			m.Members = r.members(m.Members)
		case nixlPacked:
			m.Packed = r.packed(m.Packed)
		default:
			m.number(&r, w.at)
		}
	}
	w.close()
	r.end()
	if missing := (1<<len(nixlMetadataSchema.names) - 1) &^ w.seen; missing != 0 {
		m.Missing = []byte(nixlMetadataSchema.names[bits.TrailingZeros64(missing)])
	}
	m.Unknown = w.extra
	return r.result()
}

// number takes one of the fields that are numbers.
func (m *NixlMetadata) number(r *reader, at int) {
	switch at {
	case nixlDeviceID:
		m.DeviceID = r.uint64()
	case nixlNumBlocks:
		m.NumBlocks = r.uint64()
	case nixlBlockSize:
		m.BlockSize = r.uint64()
	case nixlPerLogical:
		m.PerLogical = r.uint64()
	case nixlDCPSize:
		m.DCPSize = r.uint64()
	case nixlPCPSize:
		m.PCPSize = r.uint64()
	case nixlPLEBlockLen:
		if m.HasPLE = !r.takesNil(); m.HasPLE {
			m.PLEBlockLen = r.uint64()
		}
	case nixlSSMSizes:
		from := r.off
		if n := r.arrayUpTo(2, ""); r.ok() && n != 2 {
			r.fail(DecodeLengthMismatch, from, "1 element or none", "2")
			return
		}
		m.SSMSizes = [2]uint64{r.uint64(), r.uint64()}
	}
}

func (g *NixlRegions) decode(r *reader, at int) {
	if r.takesNil() || !r.ok() {
		return
	}
	switch at {
	case nixlRegionNumBlocks:
		g.NumBlocks, g.HasNumBlocks = r.uint64s(g.NumBlocks), true
	case nixlRegionGroupIDs:
		g.GroupIDs, g.HasGroupIDs = r.int64s(g.GroupIDs), true
	case nixlRegionNames:
		g.Names, g.HasNames = r.texts(g.Names), true
	case nixlRegionMemTypes:
		g.MemTypes, g.HasMemTypes = r.texts(g.MemTypes), true
	}
}

// takesNil takes a nil, if one comes.
func (r *reader) takesNil() bool {
	if c, ok := r.lead(); !ok || c != nilByte {
		return false
	}
	r.off++
	return true
}

// texts appends a list to vs.
func (r *reader) texts(vs [][]byte) [][]byte {
	n := r.arrayHeader()
	for vs = slices.Grow(vs, n); n > 0 && r.ok(); n-- {
		vs = append(vs, r.text())
	}
	return vs
}

// members appends lists of layers to vs, in the memory of those that it had.
func (r *reader) members(vs [][][]byte) [][][]byte {
	n := r.arrayHeader()
	for vs = slices.Grow(vs, n); n > 0 && r.ok(); n-- {
		var had [][]byte
		if len(vs) < cap(vs) {
			had = vs[:len(vs)+1][len(vs)][:0]
		}
		vs = append(vs, r.texts(had))
	}
	return vs
}

// packed appends a map of layers to vs. The second of a name is refused.
func (r *reader) packed(vs []NixlPackedMember) []NixlPackedMember {
	seen := map[string]bool{}
	n := r.mapUpTo(r.lim.ArrayLen, "ArrayLen")
	for vs = slices.Grow(vs, n); n > 0 && r.ok(); n-- {
		at := r.off
		x := NixlPackedMember{Layer: r.text()}
		if r.ok() && seen[string(x.Layer)] {
			r.fail(DecodeDuplicateField, at, quote(x.Layer), "")
		}
		seen[string(x.Layer)] = true
		from := r.off
		if two := r.arrayUpTo(2, ""); r.ok() && two != 2 {
			r.fail(DecodeLengthMismatch, from, "1 element or none", "2: an offset and a page's bytes")
		}
		x.Offset, x.PageBytes = r.uint64(), r.uint64()
		vs = append(vs, x)
	}
	return vs
}
