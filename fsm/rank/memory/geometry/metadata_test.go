package geometry

import (
	"strings"
	"testing"

	"github.com/kvferry/kvferry/protocol"
)

func texts(all ...string) (b [][]byte) {
	for _, x := range all {
		b = append(b, []byte(x))
	}
	return b
}

// metadata is a worker of three regions, of four heads in two cells, and of a group of its own each but the last.
func metadata(id string) *protocol.NixlMetadata {
	return &protocol.NixlMetadata{
		EngineID: []byte(id), BaseAddrs: []uint64{0x1000, 0x2000, 0x3000}, DeviceID: 3, NumBlocks: 8,
		BlockLens: []uint64{64, 64, 64}, BlockStrides: []uint64{64, 80, 64}, Layout: []byte("LBHNC"), BlockSize: 16,
		PerLogical: 2, DCPSize: 1, PCPSize: 1,
		Regions: protocol.NixlRegions{
			NumBlocks: []uint64{8, 8, 8}, GroupIDs: []int64{0, 1, -1}, Names: texts("l.0", "l.1", "l.2"),
			MemTypes: texts("VRAM", "VRAM", "VRAM"), HasNumBlocks: true, HasGroupIDs: true, HasNames: true, HasMemTypes: true,
		},
	}
}

func one() *Worker { return &Worker{Ranks: 1, Stages: 1, Heads: 4, CellHeads: 2} }

// What a worker says of itself, taken as it stands.
func TestRegionsOfAWorker(t *testing.T) {
	r, err := ParseRegions(metadata("P"), one())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ region, block, share uint32 }{{0, 0, 0}, {0, 7, 1}, {1, 3, 0}, {2, 1, 1}} {
		want := []uint64{0x1000, 0x2000, 0x3000}[c.region] + uint64(c.block)*[]uint64{64, 80, 64}[c.region] +
			uint64(c.share)*32
		if at, n := r.LocatePage(r.PageNumber(c.region, c.block, c.share)); at != want || n != 32 {
			t.Errorf("%+v: %d bytes at %#x, want 32 at %#x", c, n, at, want)
		}
	}
	if r.EngineID != "P" || r.Device != 3 || r.Mem != MemVRAM || r.Mem.String() != "VRAM" || r.CountPages() != 48 ||
		r.Layers[1] != (Layer{1, 1}) || r.Layers[2] != (Layer{2, Shared}) || r.Spans[1].Name != "l.1" {
		t.Errorf("%+v", r)
	}
	if n, ok := r.CellBytes(); n != 32 || !ok {
		t.Errorf("cells of %d bytes, %v", n, ok)
	}
	r.Spans[1].Length = 80
	if n, ok := r.CellBytes(); ok {
		t.Errorf("unequal cells are of %d bytes", n)
	}
	bare := metadata("P")
	bare.Regions = protocol.NixlRegions{}
	if r, err = ParseRegions(bare, one()); err != nil || r.Mem != MemUnknown || r.Mem.String() != "" || r.Layers[2] != (Layer{2, 0}) {
		t.Errorf("without lists that may be absent: %v %+v", err, r)
	}
	dram := metadata("P")
	dram.Regions.MemTypes = texts("DRAM", "DRAM", "DRAM")
	if r, err = ParseRegions(dram, one()); err != nil || r.Mem != MemDRAM || r.Mem.String() != "DRAM" {
		t.Errorf("%v %+v", err, r)
	}
}

// Each thing that one worker's metadata cannot say, or that is not moved, is refused by the wire's name of it.
func TestRefusedMetadata(t *testing.T) {
	type meta = protocol.NixlMetadata
	latent := func(m *meta, w *Worker) {
		w.Heads, w.CellHeads, m.Members = 0, 0, [][][]byte{texts("l.0", "l.3"), texts("l.1"), texts("l.2")}
	}
	for name, c := range map[string]struct {
		edit func(m *meta, w *Worker)
		code Code
		says string
	}{
		"pcp":             {func(m *meta, _ *Worker) { m.PCPSize = 2 }, Unsupported, "pcp_size 2|want 1"},
		"no pcp":          {func(m *meta, _ *Worker) { m.PCPSize = 0 }, Unsupported, "pcp_size 0|want 1"},
		"dcp":             {func(m *meta, _ *Worker) { m.DCPSize = 2 }, Unsupported, "dcp_size 2|want 1"},
		"state sizes":     {func(m *meta, _ *Worker) { m.SSMSizes[0] = 5 }, Unsupported, "ssm_sizes[0] 5|want 0"},
		"the second size": {func(m *meta, _ *Worker) { m.SSMSizes[1] = 6 }, Unsupported, "ssm_sizes[1] 6|want 0"},
		"embeddings": {func(m *meta, _ *Worker) { m.HasPLE, m.PLEBlockLen = true, 7 }, Unsupported,
			"ple_block_len 7|want nil"},
		"embeddings of no bytes": {func(m *meta, _ *Worker) { m.HasPLE = true }, Unsupported, "ple_block_len 0"},
		"no blocks":              {func(m *meta, _ *Worker) { m.NumBlocks = 0 }, Unusable, "num_blocks 0|1 to 4294967295"},
		"blocks beyond 32 bits":  {func(m *meta, _ *Worker) { m.NumBlocks = 1 << 32 }, Unusable, "num_blocks 4294967296"},
		"no tokens":              {func(m *meta, _ *Worker) { m.BlockSize = 0 }, Unusable, "block_size 0"},
		"tokens beyond 32 bits":  {func(m *meta, _ *Worker) { m.BlockSize = 1 << 32 }, Unusable, "block_size 4294967296"},
		"no ratio": {func(m *meta, _ *Worker) { m.PerLogical = 0 }, Unusable,
			"physical_blocks_per_logical_kv_block 0|1 to 8"},
		"a ratio over the blocks": {func(m *meta, _ *Worker) { m.PerLogical = 9 }, Unusable, "kv_block 9|1 to 8"},
		"an unknown layout": {func(m *meta, _ *Worker) { m.Layout = []byte("HND") }, Unsupported,
			`kv_cache_layout "HND"|LBHNC`},
		"no layout": {func(m *meta, _ *Worker) { m.Layout = nil }, Unsupported, `kv_cache_layout ""`},
		"two layouts": {func(m *meta, _ *Worker) { m.Layout = []byte("LBHNC LBNHC") }, Unsupported,
			"kv_cache_layout"},
		"a layout that splits no heads": {func(m *meta, _ *Worker) { m.Layout = []byte("LBNHC") }, Unsupported,
			`kv_cache_layout "LBNHC"|want LBHNC or BLHNC|4 of a rank into cells of 2`},
		"no regions": {func(m *meta, _ *Worker) { m.BaseAddrs = nil }, Unusable, "kv_caches_base_addr 0|1 to 16384"},
		"regions without bound": {func(m *meta, _ *Worker) { m.BaseAddrs = make([]uint64, 16385) }, Unusable,
			"kv_caches_base_addr 16385"},
		"lengths of two": {func(m *meta, _ *Worker) { m.BlockLens = m.BlockLens[:2] }, Unusable, "block_lens 2|want 3"},
		"strides of four": {func(m *meta, _ *Worker) { m.BlockStrides = make([]uint64, 4) }, Unusable,
			"block_strides 4|want 3"},
		"counts of none": {func(m *meta, _ *Worker) { m.Regions.NumBlocks = nil }, Unusable, "region_num_blocks 0|want 3"},
		"groups of two": {func(m *meta, _ *Worker) { m.Regions.GroupIDs = []int64{0, 1} }, Unusable,
			"region_group_ids 2|want 3"},
		"names of one": {func(m *meta, _ *Worker) { m.Regions.Names = texts("l.0") }, Unusable, "region_names 1|want 3"},
		"kinds of one": {func(m *meta, _ *Worker) { m.Regions.MemTypes = texts("VRAM") }, Unusable,
			"region_mem_types 1|want 3"},
		"members of one": {func(m *meta, _ *Worker) { m.Members = [][][]byte{nil} }, Unusable, "region_members 1|want 3"},
		"a block of no bytes": {func(m *meta, _ *Worker) { m.BlockLens[1] = 0 }, Unusable,
			"block_lens[1] 0|want a block's bytes"},
		"blocks that overlap": {func(m *meta, _ *Worker) { m.BlockStrides[1] = 63 }, Unusable,
			"block_strides[1] 63|want 64 at least"},
		"a last block beyond": {func(m *meta, _ *Worker) { m.BaseAddrs[2] = 1<<64 - 511 }, Unusable,
			"kv_caches_base_addr[2] 18446744073709551105|beyond 64 bits"},
		"a stride beyond": {func(m *meta, _ *Worker) { m.BlockStrides[0] = 1 << 63 }, Unusable, "kv_caches_base_addr[0]"},
		"a stride just below": {func(m *meta, _ *Worker) { m.BlockStrides[0], m.BaseAddrs[0] = (1<<64-1)/7, 0 }, Unusable,
			"kv_caches_base_addr[0] 0"},
		"a region of fewer blocks": {func(m *meta, _ *Worker) { m.Regions.NumBlocks[2] = 7 }, Unsupported,
			"region_num_blocks[2] 7|want 8"},
		"a group below -1": {func(m *meta, _ *Worker) { m.Regions.GroupIDs[0] = -2 }, Unusable,
			"region_group_ids[0] -2|-1 to 65534"},
		"a group too high": {func(m *meta, _ *Worker) { m.Regions.GroupIDs[0] = 65535 }, Unusable,
			"region_group_ids[0] 65535"},
		"memory of no kind": {func(m *meta, _ *Worker) { m.Regions.MemTypes[0] = []byte("FILE") }, Unsupported,
			`region_mem_types[0] "FILE"|VRAM or DRAM`},
		"memory of two kinds": {func(m *meta, _ *Worker) { m.Regions.MemTypes[2] = []byte("DRAM") }, Unsupported,
			`region_mem_types[2] "DRAM"|want VRAM`},
		"a length that is no cells": {func(m *meta, _ *Worker) { m.BlockLens[0] = 63 }, Unusable,
			"block_lens[0] 63|multiple of 2"},
		"a worker that cannot be": {func(_ *meta, w *Worker) { w.Rank = 1 }, Unusable, "rank 1"},
		"a layer in two regions": {func(m *meta, _ *Worker) {
			m.Members = [][][]byte{texts("l.0"), texts("l.1"), texts("l.2", "l.0")}
		}, Unusable, `region_members "l.0"|twice`},
		"a packed layer of no region": {func(m *meta, w *Worker) {
			latent(m, w)
			m.Packed = []protocol.NixlPackedMember{{Layer: []byte("l.9"), PageBytes: 32}}
		}, Unusable, `packed_member_layouts "l.9"|no such layer`},
		"packed heads": {func(m *meta, w *Worker) {
			latent(m, w)
			w.Heads, w.CellHeads = 4, 4
			m.Packed = []protocol.NixlPackedMember{{Layer: []byte("l.3"), PageBytes: 32}}
		}, Unsupported, `packed_member_layouts "l.3"|heads`},
		"a page beyond its row": {func(m *meta, w *Worker) {
			latent(m, w)
			m.Packed = []protocol.NixlPackedMember{{Layer: []byte("l.3"), Offset: 33, PageBytes: 32}}
		}, Unusable, `packed_member_layouts "l.3"|64 bytes, not 32 from 33`},
		"a page far beyond": {func(m *meta, w *Worker) {
			latent(m, w)
			m.Packed = []protocol.NixlPackedMember{{Layer: []byte("l.3"), Offset: 1<<64 - 1, PageBytes: 2}}
		}, Unusable, `packed_member_layouts "l.3"`},
		"a page whose end wraps": {func(m *meta, w *Worker) {
			latent(m, w)
			m.Packed = []protocol.NixlPackedMember{{Layer: []byte("l.3"), Offset: 32, PageBytes: 1<<64 - 16}}
		}, Unusable, `packed_member_layouts "l.3"`},
		"a page of no bytes": {func(m *meta, w *Worker) {
			latent(m, w)
			m.Packed = []protocol.NixlPackedMember{{Layer: []byte("l.3"), Offset: 32}}
		}, Unusable, `packed_member_layouts "l.3"`},
	} {
		m, w := metadata("P"), one()
		c.edit(m, w)
		r, err := ParseRegions(m, w)
		refused(t, name, err, c.code, strings.Split(c.says, "|")...)
		if len(r.Spans) > 0 {
			t.Errorf("%s: there are regions", name)
		}
	}
}

// Whatever two workers that are fine by themselves do not have in common is refused by the wire's name of it.
func TestRefusedJoins(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(p, c *Regions)
		code Code
		says string
	}{
		"one engine": {func(p, _ *Regions) { p.EngineID = "D" }, Mismatch, `producer's engine_id "D"|its own`},
		"two layouts": {func(p, _ *Regions) { p.Layout = "BLHNC" }, Mismatch,
			`producer's kv_cache_layout "BLHNC"|"LBHNC"`},
		"other blocks": {func(p, _ *Regions) { p.BlockTokens = 32 }, Mismatch, "producer's block_size 32|consumer has 16"},
		"a region less": {func(p, _ *Regions) { p.Spans, p.Layers = p.Spans[:2], p.Layers[:2] }, Mismatch,
			"producer's kv_caches_base_addr 2|consumer has 3 regions"},
		"a region more": {func(_, c *Regions) { c.Spans, c.Layers = c.Spans[:2], c.Layers[:2] }, Mismatch,
			"producer's kv_caches_base_addr 3|consumer has 2 regions"},
		"another name": {func(p, _ *Regions) { p.Spans[1].Name = "l.9" }, Mismatch,
			`producer's region_names[1] "l.9"|consumer has "l.1"`},
		"another group": {func(p, _ *Regions) { p.Layers[1].Group = 0 }, Mismatch,
			"producer's layers 1|group 0|group 1"},
		"heads that differ": {func(p, _ *Regions) { p.Heads = 8 }, Mismatch, "producer's heads 8"},
		"longer blocks": {func(p, _ *Regions) { p.Spans[2].Length = 128 }, Mismatch,
			"producer's block_lens[2] 128|want 64"},
		"a consumer's stage": {func(_, c *Regions) { c.Stages = 2 }, Unsupported, "consumer's stages 2"},
		"a stage without names": {func(p, _ *Regions) { p.Stages, p.hasNames = 2, false }, Unsupported,
			"producer's region_names nil|has stages"},
		"a consumer without names": {func(p, c *Regions) { p.Stages, c.hasNames = 2, false }, Unsupported,
			"consumer's region_names nil|has stages"},
		"a stage that is not there": {func(p, _ *Regions) { p.Stages, p.Spans[2].Name = 2, "l.9" }, Mismatch,
			`producer's region_names "l.0"|no 3 regions`},
		"a stage that is there twice": {func(p, c *Regions) {
			p.Stages, p.Spans, p.Layers, c.Spans[2].Name = 2, p.Spans[:1], p.Layers[:1], "l.0"
		}, Unusable, `consumer's region_names "l.0"|more than once`},
	} {
		p, d := regions(t, "P"), regions(t, "D")
		c.edit(p, d)
		j, err := Join(p, d, nil)
		refused(t, name, err, c.code, strings.Split(c.says, "|")...)
		if len(j.Producer.Spans) > 0 || len(j.Plan.layers) > 0 {
			t.Errorf("%s: they are joined", name)
		}
	}
	if _, err := Join(regions(t, "P"), regions(t, "D"), nil); err != nil {
		t.Errorf("without an edit: %v", err)
	}
	// A stage's regions are numbered for the pair, and not where they came from.
	p, d := regions(t, "P"), regions(t, "D")
	p.Stages, p.Stage, p.Spans, p.Layers = 2, 1, p.Spans[1:], p.Layers[1:]
	p.Layers[0].Number, p.Layers[1].Number = 0, 1
	j, err := Join(p, d, nil)
	if err != nil || j.Producer.Layers[0].Number != 1 || p.Layers[0].Number != 0 {
		t.Errorf("%v: %v of %v", err, j.Producer.Layers, p.Layers)
	}
	// Latents lie the same in every layout.
	p, d = regions(t, "P"), regions(t, "D")
	p.Heads, p.CellHeads, d.Heads, d.CellHeads, p.Layout = 0, 0, 0, 0, "BLNHC"
	if _, err := Join(p, d, nil); err != nil {
		t.Errorf("latents: %v", err)
	}
}

func regions(t *testing.T, id string) *Regions {
	t.Helper()
	r, err := ParseRegions(metadata(id), one())
	if err != nil {
		t.Fatal(err)
	}
	return &r
}

// latents are a stage and a consumer that say which layers their regions have: the consumer in rows of two.
func latents(t *testing.T, edit func(p, d *protocol.NixlMetadata)) (p, d Regions) {
	t.Helper()
	ours, theirs := metadata("P"), metadata("D")
	ours.Members = [][][]byte{texts("l.0"), texts("l.1"), texts("l.4")}
	ours.Regions.GroupIDs = []int64{0, 1, 0}
	ours.BlockLens, ours.BlockStrides = []uint64{32, 32, 64}, []uint64{32, 32, 64}
	theirs.Members = [][][]byte{texts("l.0", "l.1"), texts("l.2", "l.3"), texts("l.4", "l.5")}
	theirs.Regions.GroupIDs = []int64{-1, 1, -1}
	theirs.Packed = []protocol.NixlPackedMember{{Layer: []byte("l.0"), PageBytes: 32},
		{Layer: []byte("l.1"), Offset: 32, PageBytes: 32}}
	edit(ours, theirs)
	w := &Worker{Ranks: 1, Stages: 2}
	p, err := ParseRegions(ours, w)
	if err != nil {
		t.Fatal(err)
	}
	if d, err = ParseRegions(theirs, &Worker{Ranks: 1, Stages: 1}); err != nil {
		t.Fatal(err)
	}
	return p, d
}

// Layers that pair by name: what of it does not fit, and where they are if it does.
func TestJoinByLayer(t *testing.T) {
	type meta = protocol.NixlMetadata
	known := []LayerGroup{{"l.5", 1}, {"l.4", 0}, {"l.1", 1}, {"l.0", 0}}
	for name, c := range map[string]struct {
		edit  func(p, d *meta)
		known []LayerGroup
		code  Code
		says  string
	}{
		"a consumer without members": {func(_, d *meta) { d.Members, d.Packed = nil, nil }, known, Unusable,
			"consumer's region_members 0|has stages"},
		"a producer without members": {func(p, _ *meta) { p.Members = nil }, known, Unusable, "producer's region_members 0"},
		"a layer that the consumer lacks": {func(p, _ *meta) { p.Members[2] = texts("l.9") }, known, Mismatch,
			`producer's region_members "l.9"|no such layer`},
		"a row of which one is not placed": {func(_, d *meta) { d.Packed = d.Packed[:1] }, known, Unusable,
			`consumer's packed_member_layouts "l.1"|all or none`},
		"a group that nobody says": {func(_, _ *meta) {}, known[:3], Unsupported,
			`consumer's region_group_ids -1|layer "l.0"`},
		"a group that we know otherwise": {func(p, _ *meta) { p.Regions.GroupIDs[1] = 0 }, known, Mismatch,
			`producer's region_group_ids 0|layer "l.1" is of group 1`},
		"a group that differs": {func(p, d *meta) {
			d.Members[0], d.Members[1] = texts("l.0", "l.2"), texts("l.1", "l.3")
			p.Regions.GroupIDs[1], d.Packed[1].Layer = 0, []byte("l.2")
		}, []LayerGroup{{"l.0", 0}, {"l.2", 1}, {"l.4", 0}, {"l.5", 1}}, Mismatch, "producer's layers|group 0|group 1"},
		"a page of other bytes": {func(_, d *meta) { d.Packed[1].PageBytes = 16 }, known, Mismatch,
			"producer's block_lens[1] 32|want 16"},
	} {
		p, d := latents(t, c.edit)
		_, err := Join(&p, &d, c.known)
		refused(t, name, err, c.code, strings.Split(c.says, "|")...)
	}
	p, d := latents(t, func(_, _ *meta) {})
	p.Heads, d.Heads, p.CellHeads, d.CellHeads, d.Ranks = 2, 2, 1, 1, 2
	_, err := Join(&p, &d, known)
	refused(t, "more consumers", err, Unsupported, "consumer's ranks 2", "the producer's 1")

	p, d = latents(t, func(_, _ *meta) {})
	j, err := Join(&p, &d, known)
	if err != nil {
		t.Fatal(err)
	}
	want := []Span{{"l.0", 0x1000, 64, 32}, {"l.1", 0x1020, 64, 32}, {"l.2", 0x2000, 80, 64}, {"l.3", 0x2000, 80, 64},
		{"l.4", 0x3000, 64, 64}, {"l.5", 0x3000, 64, 64}}
	for i, x := range want {
		if j.Consumer.Spans[i] != x || j.Consumer.Layers[i].Number != uint32(i) {
			t.Errorf("layer %d is %+v, want %+v", j.Consumer.Layers[i].Number, j.Consumer.Spans[i], x)
		}
	}
	if len(d.Spans) != 3 || len(d.members) != 6 || d.Layers[0].Group != Shared {
		t.Errorf("the consumer's own regions changed: %+v", d)
	}
}

// Ranks of one engine have the same blocks.
func TestSiblings(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(r *Regions)
		says string
	}{
		"blocks":  {func(r *Regions) { r.Blocks = 7 }, "num_blocks 7|has 8"},
		"tokens":  {func(r *Regions) { r.BlockTokens = 7 }, "block_size 7|has 16"},
		"ratio":   {func(r *Regions) { r.PerLogical = 7 }, "physical_blocks_per_logical_kv_block 7|has 2"},
		"ranks":   {func(r *Regions) { r.Ranks = 7 }, "ranks 7|has 1"},
		"stages":  {func(r *Regions) { r.Stages = 7 }, "stages 7|has 1"},
		"engines": {func(r *Regions) { r.EngineID = "Q" }, `engine_id "Q"|has "P"`},
	} {
		other := regions(t, "P")
		c.edit(other)
		refused(t, name, CheckSiblings(regions(t, "P"), other), Mismatch, strings.Split(c.says, "|")...)
	}
	other := regions(t, "P")
	if other.Rank = 1; CheckSiblings(regions(t, "P"), other) != nil {
		t.Error("ranks of one engine are refused")
	}
}

// No metadata panics, whoever sends it; and what is taken has each page within the worker's own regions, and of what
// joins each page goes into one of as many bytes.
func FuzzMetadata(f *testing.F) {
	for _, m := range []*protocol.NixlMetadata{metadata("P"), {}} {
		f.Add(m.Append(nil), uint32(1), uint32(0), uint32(1), uint32(0), uint32(4), uint32(2))
		m.Members = [][][]byte{texts("l.0", "l.3"), texts("l.1"), texts("l.2")}
		f.Add(m.Append(nil), uint32(2), uint32(1), uint32(2), uint32(1), uint32(4), uint32(2))
		m.Packed = []protocol.NixlPackedMember{{Layer: []byte("l.0"), PageBytes: 64}, {Layer: []byte("l.3"), PageBytes: 64}}
		f.Add(m.Append(nil), uint32(1), uint32(0), uint32(2), uint32(0), uint32(0), uint32(0))
	}
	lists := []Blocks{{Group: 0, Logical: []uint32{0, 2}}, {Group: 1, First: 2, Logical: []uint32{1}}}
	f.Fuzz(func(t *testing.T, b []byte, ranks, rank, stages, stage, heads, cell uint32) {
		var m protocol.NixlMetadata
		if m.Decode(b, nil) != nil {
			return
		}
		r, err := ParseRegions(&m, &Worker{Ranks: ranks, Rank: rank, Stages: stages, Stage: stage, Heads: heads, CellHeads: cell})
		if err != nil {
			return
		}
		for _, page := range []uint64{0, r.CountPages() / 2, r.CountPages() - 1} {
			at, n := r.LocatePage(uint32(page))
			region, block, _ := r.PlaceOf(uint32(page))
			s := r.Spans[region]
			if base := s.Base + uint64(block)*s.Stride; n == 0 || at < base || at+n > base+s.Length || at+n < at {
				t.Fatalf("page %d has %d bytes at %#x, its block is at %#x: %+v", page, n, at, base, s)
			}
		}
		consumer := r
		consumer.EngineID, consumer.Stages, consumer.Stage = r.EngineID+"D", 1, 0
		consumer.Ranks, consumer.Rank, consumer.Heads, consumer.CellHeads = 1, 0, heads, cell
		j, err := Join(&r, &consumer, []LayerGroup{{"l.2", 0}, {"l.3", 0}})
		if err != nil {
			return
		}
		pairs, err := j.Plan.PairBlocks(lists, lists)
		if err != nil {
			return
		}
		for from, to := range pairs.All() {
			if uint64(from) >= j.Producer.CountPages() || uint64(to) >= j.Consumer.CountPages() {
				t.Fatalf("page %d into %d, of %d and %d", from, to, j.Producer.CountPages(), j.Consumer.CountPages())
			}
			_, n := j.Producer.LocatePage(from)
			if _, into := j.Consumer.LocatePage(to); n != into {
				t.Fatalf("%d bytes into %d", n, into)
			}
		}
	})
}
