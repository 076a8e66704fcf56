package geometry

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// An engines is a producer engine and a consumer engine of one model, told by its own rules and not by the package's:
// each side's caches hold values that say what they are.
type engines struct {
	heads, cell  uint32
	p, d, stages uint32
	layers       []Layer // of the model
	split        []uint32
	blocks       [2]uint32 // kernel blocks of the producer, of the consumer
	per          [2]uint32
	order        []int // of layers in the consumer's regions
	prompt       uint64
	groups       []uint16
	want, have   []Blocks
}

// A value is what a page holds: of a layer and group, from which head on, at which position.
type value struct {
	layer    uint32
	group    uint16
	head     uint32
	position uint64
}

func divisors(n uint32) (all []uint32) {
	for i := uint32(1); i <= n; i++ {
		if n%i == 0 {
			all = append(all, i)
		}
	}
	return all
}

// perRank is how many heads a rank has, and rankHeads which: as vLLM gives them out.
func perRank(heads, ranks uint32) uint32 { return max(1, heads/ranks) }

func rankHeads(heads, ranks, rank uint32) (first, n uint32) {
	if heads >= ranks {
		return rank * (heads / ranks), heads / ranks
	}
	return rank / (ranks / heads), 1
}

func drawEngines(t *rapid.T) *engines {
	e := &engines{}
	few := rapid.SampledFrom([]uint32{1, 2, 3, 4}).Draw(t, "ranks")
	many := few * rapid.SampledFrom([]uint32{1, 1, 2, 3, 4}).Draw(t, "times")
	if e.p, e.d = few, many; rapid.Bool().Draw(t, "producer has more") {
		e.p, e.d = many, few
	}
	var fit []uint32
	for h := uint32(1); h <= 2*many; h++ {
		if (h%many == 0 || many%h == 0) && (h%few == 0 || few%h == 0) {
			fit = append(fit, h)
		}
	}
	if !rapid.Bool().Draw(t, "latent") {
		e.heads = rapid.SampledFrom(fit).Draw(t, "heads")
		e.cell = rapid.SampledFrom(divisors(perRank(e.heads, many))).Draw(t, "cell")
	}
	e.stages = rapid.Uint32Range(1, 3).Draw(t, "stages")
	groups := rapid.IntRange(1, 3).Draw(t, "groups")
	for g := range groups {
		e.groups = append(e.groups, uint16(2*g))
	}
	n := int(e.stages) + rapid.IntRange(0, 3).Draw(t, "more layers")
	for i := range n {
		group := rapid.SampledFrom(append(slices.Clone(e.groups), Shared)).Draw(t, "group")
		e.layers = append(e.layers, Layer{Number: uint32(3 * i), Group: group})
	}
	e.groups = slices.DeleteFunc(e.groups, func(group uint16) bool {
		return !slices.ContainsFunc(e.layers, func(x Layer) bool { return x.Group == group || x.Group == Shared })
	})
	// Where stages begin: the rest of the layers goes to the last one.
	for s := range e.stages {
		e.split = append(e.split, s)
	}
	e.split = append(e.split, uint32(n))
	e.order = rapid.Permutation(counted(n)).Draw(t, "regions")
	e.per = [2]uint32{rapid.Uint32Range(1, 3).Draw(t, "per logical"), rapid.Uint32Range(1, 3).Draw(t, "theirs")}
	e.prompt = rapid.Uint64Range(1, 9).Draw(t, "prompt")
	e.drawLists(t)
	return e
}

func counted(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// drawLists gives both sides blocks: the producer what it has of the prompt, the consumer what it wants.
func (e *engines) drawLists(t *rapid.T) {
	free := [2][]uint32{}
	for side := range free {
		logical := len(e.groups)*9 + rapid.IntRange(0, 2).Draw(t, "spare")
		e.blocks[side] = uint32(logical)*e.per[side] + rapid.Uint32Range(0, e.per[side]-1).Draw(t, "rest")
		for _, b := range rapid.Permutation(counted(logical)).Draw(t, "blocks") {
			free[side] = append(free[side], uint32(b))
		}
	}
	take := func(side int, first, end uint64) []uint32 {
		n := (end - first + uint64(e.per[side]) - 1) / uint64(e.per[side])
		list := free[side][:n]
		free[side] = free[side][n:]
		return list
	}
	for _, g := range e.groups {
		first := [2]uint64{}
		for side, per := range e.per {
			first[side] = uint64(per) * rapid.Uint64Range(0, e.prompt/uint64(per)).Draw(t, "first")
		}
		first[0] = min(first[0], first[1]/uint64(e.per[0])*uint64(e.per[0]))
		if first[0] < e.prompt {
			e.have = append(e.have, Blocks{Group: g, First: first[0], End: e.prompt, Logical: take(0, first[0], e.prompt)})
		}
		switch end := rapid.Uint64Range(first[1], e.prompt).Draw(t, "end"); {
		case end > first[1]:
			e.want = append(e.want, Blocks{Group: g, First: first[1], End: end, Logical: take(1, first[1], end)})
		case rapid.Bool().Draw(t, "named"):
			e.want = append(e.want, Blocks{Group: g, First: first[1]})
		}
	}
}

func (e *engines) producer(stage, rank uint32) *Geometry {
	return &Geometry{Ranks: e.p, Rank: rank, Stages: e.stages, Stage: stage, Heads: e.heads, CellHeads: e.cell,
		Blocks: e.blocks[0], PerLogical: e.per[0], BlockTokens: 16, Layers: e.layers[e.split[stage]:e.split[stage+1]]}
}

func (e *engines) consumer(rank uint32) *Geometry {
	g := &Geometry{Ranks: e.d, Rank: rank, Stages: 1, Heads: e.heads, CellHeads: e.cell, Blocks: e.blocks[1],
		PerLogical: e.per[1], BlockTokens: 16}
	for _, i := range e.order {
		g.Layers = append(g.Layers, e.layers[i])
	}
	return g
}

// cache is what the pages of a rank hold of these lists, in the order in which lists, layers, positions and heads go.
func (e *engines) cache(g *Geometry, lists []Blocks) (pages []uint32, is map[uint32]value) {
	is = map[uint32]value{}
	firstHead, cells := uint32(0), uint32(1)
	if e.heads > 0 {
		first, n := rankHeads(e.heads, g.Ranks, g.Rank)
		firstHead, cells = first, n/e.cell
	}
	for _, list := range lists {
		for region, layer := range g.Layers {
			if layer.Group != list.Group && layer.Group != Shared {
				continue
			}
			for position := list.First; position < list.End; position++ {
				in := position - list.First
				block := list.Logical[in/uint64(g.PerLogical)]*g.PerLogical + uint32(in%uint64(g.PerLogical))
				for c := range cells {
					page := (uint32(region)*g.Blocks+block)*cells + c
					pages = append(pages, page)
					is[page] = value{layer.Number, list.Group, firstHead + c*e.cell, position}
				}
			}
		}
	}
	return pages, is
}

// Whatever two engines are, each page that a consumer rank has registered is written once, with its own layer, heads
// and position, and no other page is; and the consumer knows beforehand which pages those are, and in which order.
func TestEachPageIsWrittenOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := drawEngines(t)
		for rank := range e.d {
			e.checkConsumer(t, rank)
		}
	})
}

func (e *engines) checkConsumer(t *rapid.T, rank uint32) {
	consumer := e.consumer(rank)
	_, want := e.cache(consumer, e.want)
	got := map[uint32]value{}
	var plans []Plan
	for stage := range e.stages {
		for from := range e.p {
			producer := e.producer(stage, from)
			plan, err := MatchRanks(producer, consumer)
			if err != nil {
				t.Fatalf("stage %d rank %d: %v", stage, from, err)
			}
			plans = append(plans, plan)
			e.write(t, &plan, producer, consumer, got)
		}
	}
	if err := CheckCoverage(consumer, plans); err != nil {
		t.Fatal(err)
	}
	for page, is := range want {
		if got[page] != is {
			t.Fatalf("rank %d page %d: got %+v, want %+v", rank, page, got[page], is)
		}
	}
	if len(got) != len(want) {
		t.Fatalf("rank %d: %d pages written, %d registered", rank, len(got), len(want))
	}
}

// write moves what a plan says into a consumer's pages.
func (e *engines) write(t *rapid.T, plan *Plan, producer, consumer *Geometry, into map[uint32]value) {
	near, err := ProducersOf(consumer, e.p, e.stages)
	if err != nil {
		t.Fatal(err)
	}
	if !plan.IsEmpty() && !near.Has(producer.Stage, producer.Rank) {
		t.Fatal("who is no neighbour writes")
	}
	_, have := e.cache(producer, e.have)
	pairs, err := plan.PairBlocks(e.have, e.want)
	if err != nil {
		t.Fatal(err)
	}
	pages, err := plan.ConsumerPages(e.want)
	if err != nil {
		t.Fatal(err)
	}
	var order []uint32
	for from, to := range pairs.All() {
		is, ok := have[from]
		if !ok {
			t.Fatalf("page %d of the producer's holds nothing of the request", from)
		}
		if _, twice := into[to]; twice {
			t.Fatalf("page %d is written twice", to)
		}
		into[to], order = is, append(order, to)
	}
	if got := slices.Collect(pages.All()); !slices.Equal(got, order) {
		t.Fatalf("the consumer says %v, the producer writes %v", got, order)
	}
	if n, err := plan.CountPages(e.want); err != nil || n != uint64(len(order)) || pairs.Len() != n || pages.Len() != n {
		t.Fatalf("%d pages counted, %d written: %v", n, len(order), err)
	}
	checkOrder(t, consumer, e.want, order)
	skip := rapid.IntRange(0, len(order)).Draw(t, "skip")
	if got := slices.Collect(pages.AllFrom(uint64(skip))); !slices.Equal(got, order[skip:]) {
		t.Fatalf("from %d on: %v, want %v", skip, got, order[skip:])
	}
	at := skip
	for _, to := range pairs.AllFrom(uint64(skip)) {
		if at >= len(order) || order[at] != to {
			t.Fatalf("from %d on: pair %d is to %d", skip, at, to)
		}
		if at++; rapid.Bool().Draw(t, "stop") {
			break
		}
	}
}

// checkOrder says whether pages come by group, region, block and share: they are some of all, in the order of those.
func checkOrder(t *rapid.T, consumer *Geometry, lists []Blocks, order []uint32) {
	e := engines{heads: consumer.Heads, cell: consumer.CellHeads}
	all, _ := e.cache(consumer, lists)
	for _, page := range all {
		if len(order) > 0 && order[0] == page {
			order = order[1:]
		}
	}
	if len(order) > 0 {
		t.Fatalf("%v are out of order", order)
	}
}

// Who registers with whom is the same from both ends, and the heads of neighbours are each other's.
func TestNeighboursAreMutual(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := drawEngines(t)
		served := 0
		for c := range e.d {
			producers, err := ProducersOf(e.consumer(c), e.p, e.stages)
			if err != nil {
				t.Fatal(err)
			}
			if want := uint64(e.stages * max(1, e.p/e.d)); producers.Len() != want {
				t.Fatalf("%d producers, want %d", producers.Len(), want)
			}
			n := uint64(0)
			for stage, rank := range producers.All() {
				if !producers.Has(stage, rank) || producers.Index(stage, rank) != n {
					t.Fatalf("%+v has no %d/%d, or not as number %d", producers, stage, rank, n)
				}
				n++
			}
			if n != producers.Len() {
				t.Fatalf("%d of %d", n, producers.Len())
			}
			for stage := range e.stages {
				for p := range e.p {
					consumers, err := ConsumersOf(e.producer(stage, p), e.d)
					if err != nil {
						t.Fatal(err)
					}
					if consumers.Has(0, c) != producers.Has(stage, p) {
						t.Fatalf("consumer %d has %+v, producer %d/%d has %+v", c, producers, stage, p, consumers)
					}
					if producers.Has(stage, p) {
						served++
					}
				}
			}
		}
		if want := int(e.stages * max(e.p, e.d)); served != want {
			t.Fatalf("%d pairs, want %d", served, want)
		}
	})
}

// Page and Place are each other's reverse, and number all pages from 0 on.
func TestPagesAreNumbered(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := drawEngines(t).consumer(0)
		next := uint32(0)
		for region := range uint32(len(g.Layers)) {
			for block := range g.Blocks {
				for share := range g.SharesPerBlock() {
					r, b, s := g.PlaceOf(next)
					if g.PageNumber(region, block, share) != next || r != region || b != block || s != share {
						t.Fatalf("page %d of %d/%d/%d is at %d/%d/%d", next, region, block, share, r, b, s)
					}
					next++
				}
			}
		}
		if uint64(next) != g.CountPages() {
			t.Fatalf("%d pages, counted %d", g.CountPages(), next)
		}
	})
}
