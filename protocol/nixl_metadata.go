package protocol

import (
	"math/bits"
	"slices"
)

// NixlVersions are the versions of vLLM's NIXL connector whose messages this package decodes, with the releases of vLLM
// that contain the versions. The additions of version 15 to version 14 concern only engines that pull.
const NixlVersions = "14 (vLLM 0.32) or 15 (vLLM 0.33)"

// A NixlMetadata describes a worker of vLLM's NIXL connector and the worker's memory (NixlAgentMetadata of
// NixlVersions). The blocks lie in regions, one region for each view of an attention layer: a block begins at
// BaseAddrs[region] plus the block's number times BlockStrides[region]. Units are bytes and tokens. Decode is as strict
// as the reference, and does not check that the lists by region are equally long.
//
//wire:untagged name=NixlAgentMetadata
type NixlMetadata struct {
	EngineID     []byte    `wire:"engine_id"`
	Agent        []byte    `wire:"agent_metadata,bin=AgentBytes"` // libnixl's own, for peers that connect to the agent
	BaseAddrs    []uint64  `wire:"kv_caches_base_addr"`           // by region
	DeviceID     uint64    `wire:"device_id"`
	NumBlocks    uint64    `wire:"num_blocks"`      // kernel blocks
	BlockLens    []uint64  `wire:"block_lens"`      // by region
	BlockStrides []uint64  `wire:"block_strides"`   // by region
	Layout       []byte    `wire:"kv_cache_layout"` // for example LBHNC
	BlockSize    uint64    `wire:"block_size"`      // tokens of a kernel block
	SSMSizes     [2]uint64 `wire:"ssm_sizes"`
	Backend      []byte    `wire:"attn_backend_name"`
	PerLogical   uint64    `wire:"physical_blocks_per_logical_kv_block"`

	Regions NixlRegions `wire:",inline"`

	DCPSize     uint64 `wire:"dcp_size,default=1"`
	PCPSize     uint64 `wire:"pcp_size,default=1"`
	HasPLE      bool   `wire:"-"` // PLEBlockLen is present
	PLEBlockLen uint64 `wire:"ple_block_len,optional,nil=HasPLE"`

	// Members are, by region, the layers that are packed into the rows of the region.
	Members [][][]byte         `wire:"region_members,optional"`
	Packed  []NixlPackedMember `wire:"packed_member_layouts,optional"` // in the order of the bytes

	// Missing is the first absent field among the fields that an engine of NixlVersions sends, and Unknown the first
	// field that such an engine does not send; both are views. An engine of NixlVersions sends every field, including
	// the fields with defaults.
	Missing []byte `wire:"-"`
	Unknown []byte `wire:"-"`
}

// NixlRegions are lists by region. Each list may be nil on the wire: then the list is empty and its Has field is false.
type NixlRegions struct {
	NumBlocks []uint64 `wire:"region_num_blocks,optional,nil=HasNumBlocks"`
	GroupIDs  []int64  `wire:"region_group_ids,optional,nil=HasGroupIDs"` // -1: all groups
	Names     [][]byte `wire:"region_names,optional,nil=HasNames"`
	MemTypes  [][]byte `wire:"region_mem_types,optional,nil=HasMemTypes"`

	HasNumBlocks bool `wire:"-"`
	HasGroupIDs  bool `wire:"-"`
	HasNames     bool `wire:"-"`
	HasMemTypes  bool `wire:"-"`
}

// A NixlPackedMember is the place of a layer's page in a row.
type NixlPackedMember struct {
	Layer     []byte
	Offset    uint64
	PageBytes uint64
}

// validate records how the message differs from that of an engine of NixlVersions.
func (m *NixlMetadata) validate(w *mapReader) {
	if missing := (1<<len(w.schema.names) - 1) &^ w.seen; missing != 0 {
		m.Missing = []byte(w.schema.names[bits.TrailingZeros64(missing)])
	}
	m.Unknown = w.unknownName
}

// VersionMismatch describes how m differs from the messages of engines of NixlVersions. It returns an empty text if
// there is no difference. The version itself is not on the wire.
func (m *NixlMetadata) VersionMismatch() string {
	switch {
	case m.Missing != nil:
		return "an older one: it sends no " + string(m.Missing)
	case m.Unknown != nil:
		return "a newer one: it sends " + quoteBytes(m.Unknown)
	}
	return ""
}

// readMembers appends lists of layers to vs, and reuses the memory of lists that vs held before.
func (r *reader) readMembers(vs [][][]byte) [][][]byte {
	n := r.readArrayHeader()
	for vs = slices.Grow(vs, n); n > 0 && r.ok(); n-- {
		var reused [][]byte
		if len(vs) < cap(vs) {
			reused = vs[:len(vs)+1][len(vs)][:0]
		}
		vs = append(vs, r.readTexts(reused))
	}
	return vs
}

// readPackedMembers appends a map of layers to vs, and refuses a map with the same layer name twice.
func (r *reader) readPackedMembers(vs []NixlPackedMember) []NixlPackedMember {
	seen := map[string]bool{}
	n := r.readMapHeaderUpTo(r.lim.ArrayLen, "ArrayLen")
	for vs = slices.Grow(vs, n); n > 0 && r.ok(); n-- {
		at := r.off
		x := NixlPackedMember{Layer: r.readText()}
		if r.ok() && seen[string(x.Layer)] {
			r.fail(DecodeDuplicateField, at, quoteBytes(x.Layer), "")
		}
		seen[string(x.Layer)] = true
		r.readFixedArray(2)
		x.Offset, x.PageBytes = r.readUint64(), r.readUint64()
		vs = append(vs, x)
	}
	return vs
}

func appendMembers(b []byte, regions [][][]byte) []byte {
	b = appendArrayHeader(b, len(regions))
	for _, layers := range regions {
		b = appendTexts(b, layers)
	}
	return b
}

func appendPackedMembers(b []byte, vs []NixlPackedMember) []byte {
	b = appendMapHeader(b, len(vs))
	for _, x := range vs {
		b = appendUint(appendUint(appendArrayHeader(appendStr(b, x.Layer), 2), x.Offset), x.PageBytes)
	}
	return b
}
