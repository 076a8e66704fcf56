package geometry

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/kvferry/kvferry/protocol"
)

// headBytes is what a head has in a block, and a latent.
const headBytes = 4

// A placed is where a rank has a layer: told by the reference's formulas, and not by the package's.
type placed struct{ base, stride uint64 }

// describe makes the metadata of a rank whose regions have these layers each, and says where those are. In packed rows
// layers lie side by side; else those of a region share its blocks.
func describe(t *rapid.T, id string, g *Geometry, regions [][]Layer, packed bool) (
	*protocol.NixlMetadata, map[uint32]placed) {
	m := &protocol.NixlMetadata{EngineID: []byte(id), NumBlocks: uint64(g.Blocks), Layout: []byte("LBHNC"),
		BlockSize: uint64(g.BlockTokens), PerLogical: uint64(g.PerLogical), DCPSize: 1, PCPSize: 1}
	m.Regions = protocol.NixlRegions{HasNumBlocks: true, HasGroupIDs: true, HasNames: true, HasMemTypes: true}
	where, next := map[uint32]placed{}, uint64(0x10000)
	page := uint64(headBytes)
	if g.Heads > 0 {
		page *= uint64(perRank(g.Heads, g.Ranks))
	}
	for _, layers := range regions {
		length := page
		if packed {
			length *= uint64(len(layers))
		}
		stride, group, names := length, int64(layers[0].Group), [][]byte{}
		if !packed {
			stride += headBytes * rapid.Uint64Range(0, 2).Draw(t, "padding")
		}
		for i, x := range layers {
			at := placed{next, stride}
			name := fmt.Appendf(nil, "l.%d", x.Number)
			if packed {
				at.base += page * uint64(i)
				m.Packed = append(m.Packed, protocol.NixlPackedMember{Layer: name, Offset: page * uint64(i), PageBytes: page})
			}
			if int64(x.Group) != group || x.Group == Shared {
				group = -1
			}
			where[x.Number], names = at, append(names, name)
		}
		m.BaseAddrs, m.BlockLens = append(m.BaseAddrs, next), append(m.BlockLens, length)
		m.BlockStrides, m.Members = append(m.BlockStrides, stride), append(m.Members, names)
		m.Regions.NumBlocks = append(m.Regions.NumBlocks, m.NumBlocks)
		m.Regions.GroupIDs = append(m.Regions.GroupIDs, group)
		m.Regions.Names = append(m.Regions.Names, names[0])
		m.Regions.MemTypes = append(m.Regions.MemTypes, []byte("VRAM"))
		next += stride*m.NumBlocks + headBytes
	}
	return m, where
}

// held is what a rank's memory holds of these lists, by address of each head.
func (e *engines) held(g *Geometry, where map[uint32]placed, lists []Blocks) map[uint64]value {
	held := map[uint64]value{}
	first, n := uint32(0), uint32(1)
	if e.heads > 0 {
		first, n = rankHeads(e.heads, g.Ranks, g.Rank)
	}
	for _, list := range lists {
		for _, x := range g.Layers {
			if x.Group != list.Group && x.Group != Shared {
				continue
			}
			for position := list.First; position < list.End; position++ {
				in := position - list.First
				block := list.Logical[in/uint64(g.PerLogical)]*g.PerLogical + uint32(in%uint64(g.PerLogical))
				for h := range n {
					at := where[x.Number].base + uint64(block)*where[x.Number].stride + headBytes*uint64(h)
					held[at] = value{x.Number, list.Group, first + h, position}
				}
			}
		}
	}
	return held
}

func worker(g *Geometry) *Worker {
	return &Worker{Ranks: g.Ranks, Rank: g.Rank, Stages: g.Stages, Stage: g.Stage, Heads: g.Heads, CellHeads: g.CellHeads}
}

// regionsOf cuts layers into regions, of one group each in packed rows, else of one layer a group at the most.
func regionsOf(t *rapid.T, layers []Layer, packed bool) (regions [][]Layer) {
	for _, x := range layers {
		i := rapid.IntRange(0, len(regions)).Draw(t, "region")
		if i == len(regions) || packed != slices.ContainsFunc(regions[i], func(y Layer) bool { return y.Group == x.Group }) {
			regions = append(regions, []Layer{x})
		} else {
			regions[i] = append(regions[i], x)
		}
	}
	return regions
}

func alone(layers []Layer) (regions [][]Layer) {
	for _, x := range layers {
		regions = append(regions, []Layer{x})
	}
	return regions
}

// From metadata to bytes: each head of a consumer's blocks is written once, with its own, whether regions pair by their
// order, by their names or by their layers, and the consumer's pages are the same for all producers.
func TestEachHeadIsWrittenOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := drawEngines(t)
		e.order = counted(len(e.layers))
		byLayer := e.stages > 1 && (e.p >= e.d || e.heads == 0) && rapid.Bool().Draw(t, "by layer")
		packed := byLayer && e.heads == 0 && rapid.Bool().Draw(t, "packed")
		if byLayer {
			e.noShared(t)
		}
		var named []LayerGroup
		for _, x := range e.layers {
			if x.Group != Shared {
				named = append(named, LayerGroup{fmt.Sprintf("l.%d", x.Number), x.Group})
			}
		}
		for rank := range e.d {
			consumer := e.consumer(rank)
			regions := alone(consumer.Layers)
			if byLayer {
				regions = regionsOf(t, consumer.Layers, packed)
			}
			theirs, where := describe(t, "D", consumer, regions, packed)
			if !byLayer {
				theirs.Members = nil
			}
			into := map[uint64]value{}
			var plans []Plan
			var last *RankPair
			for stage := range e.stages {
				for from := range e.p {
					producer := e.producer(stage, from)
					ours, at := describe(t, "P", producer, alone(producer.Layers), false)
					if !byLayer {
						ours.Members = nil
					}
					j := joined(t, ours, producer, theirs, consumer, named)
					e.move(t, j, e.held(producer, at, e.have), into)
					if last != nil && !slices.Equal(last.Consumer.Layers, j.Consumer.Layers) {
						t.Fatalf("stages number the consumer's layers as %v and %v", last.Consumer.Layers, j.Consumer.Layers)
					}
					last, plans = j, append(plans, j.Plan)
				}
			}
			if err := CheckCoverage(&last.Consumer.Geometry, plans); err != nil {
				t.Fatal(err)
			}
			want := e.held(consumer, where, e.want)
			for at, is := range want {
				if into[at] != is {
					t.Fatalf("rank %d at %#x: got %+v, want %+v", rank, at, into[at], is)
				}
			}
			if len(into) != len(want) {
				t.Fatalf("rank %d: %d heads written, %d wanted", rank, len(into), len(want))
			}
		}
	})
}

// noShared gives each layer a group of its own, and drops the lists that no layer is of then.
func (e *engines) noShared(t *rapid.T) {
	for i := range e.layers {
		if e.layers[i].Group == Shared {
			e.layers[i].Group = rapid.SampledFrom(e.groups).Draw(t, "instead")
		}
	}
	none := func(b Blocks) bool {
		return !slices.ContainsFunc(e.layers, func(x Layer) bool { return x.Group == b.Group })
	}
	e.have, e.want = slices.DeleteFunc(e.have, none), slices.DeleteFunc(e.want, none)
}

func joined(t *rapid.T, ours *protocol.NixlMetadata, producer *Geometry, theirs *protocol.NixlMetadata,
	consumer *Geometry, named []LayerGroup) *RankPair {
	t.Helper()
	p, err := ParseRegions(ours, worker(producer))
	if err != nil {
		t.Fatal(err)
	}
	c, err := ParseRegions(theirs, worker(consumer))
	if err != nil {
		t.Fatal(err)
	}
	j, err := Join(&p, &c, named)
	if err != nil {
		t.Fatal(err)
	}
	return &j
}

func (e *engines) move(t *rapid.T, j *RankPair, held, into map[uint64]value) {
	pairs, err := j.Plan.PairBlocks(e.have, e.want)
	if err != nil {
		t.Fatal(err)
	}
	for from, to := range pairs.All() {
		a, n := j.Producer.LocatePage(from)
		b, m := j.Consumer.LocatePage(to)
		if n != m || n != headBytes*uint64(max(1, e.cell)) {
			t.Fatalf("%d bytes into %d", n, m)
		}
		for off := uint64(0); off < n; off += headBytes {
			is, ok := held[a+off]
			if _, twice := into[b+off]; twice || !ok {
				t.Fatalf("%#x to %#x: twice %v, is there %v", a+off, b+off, twice, ok)
			}
			into[b+off] = is
		}
	}
}
