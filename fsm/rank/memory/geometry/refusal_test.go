package geometry

import (
	"errors"
	"strings"
	"testing"
)

// Sides of one rank each, of four heads, three layers and two groups.
func side() *Geometry {
	return &Geometry{Ranks: 1, Stages: 1, Heads: 4, CellHeads: 2, Blocks: 8, PerLogical: 2, BlockTokens: 16,
		Layers: []Layer{{0, 0}, {1, 1}, {2, Shared}}}
}

// refused holds an error against what it has to name.
func refused(t *testing.T, name string, err error, code Code, words ...string) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) {
		t.Errorf("%s: got %v, want a refusal", name, err)
		return
	}
	if e.Code != code || e.Field == "" || e.Value == "" || e.Remedy == "" {
		t.Errorf("%s: %+v, want code %d", name, *e, code)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %q does not say %q", name, err, word)
		}
	}
}

// Each refusal of one side's geometry, or of a pair, names whose field it is, its value and what was expected.
func TestRefusedPairs(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(p, c *Geometry)
		code Code
		says string // pieces of it, between bars
	}{
		"no ranks":               {func(p, _ *Geometry) { p.Ranks = 0 }, Unusable, "producer's ranks 0|1 to 4096"},
		"ranks without bound":    {func(_, c *Geometry) { c.Ranks = 4097 }, Unusable, "consumer's ranks 4097"},
		"rank too high":          {func(p, _ *Geometry) { p.Rank = 1 }, Unusable, "producer's rank 1|0 to 0"},
		"no stages":              {func(p, _ *Geometry) { p.Stages = 0 }, Unusable, "producer's stages 0|1 to 1024"},
		"stages without bound":   {func(p, _ *Geometry) { p.Stages = 1025 }, Unusable, "producer's stages 1025"},
		"stage too high":         {func(p, _ *Geometry) { p.Stage = 1 }, Unusable, "producer's stage 1"},
		"no layers":              {func(_, c *Geometry) { c.Layers = nil }, Unusable, "consumer's layers 0"},
		"layers without bound":   {func(_, c *Geometry) { c.Layers = make([]Layer, 16385) }, Unusable, "layers 16385"},
		"heads without bound":    {func(p, _ *Geometry) { p.Heads = 16385 }, Unusable, "producer's heads 16385"},
		"no blocks":              {func(p, _ *Geometry) { p.Blocks = 0 }, Unusable, "producer's blocks 0"},
		"no per logical":         {func(p, _ *Geometry) { p.PerLogical = 0 }, Unusable, "producer's per_logical 0"},
		"per logical over all":   {func(p, _ *Geometry) { p.PerLogical = 9 }, Unusable, "producer's per_logical 9|1 to 8"},
		"no tokens":              {func(p, _ *Geometry) { p.BlockTokens = 0 }, Unusable, "producer's block_tokens 0"},
		"pages over 32 bits":     {func(p, _ *Geometry) { p.Blocks = 1 << 30 }, Unusable, "blocks 1073741824|3 layers"},
		"blocks over 32 bits":    {func(p, _ *Geometry) { p.Blocks = 1<<32 - 1 }, Unusable, "producer's blocks 4294967295"},
		"a layer twice":          {func(p, _ *Geometry) { p.Layers[1].Number = 2 }, Unusable, "producer's layers 2|twice"},
		"latent in head cells":   {func(p, _ *Geometry) { p.Heads = 0 }, Unusable, "producer's cell_heads 2|want 0"},
		"heads over odd ranks":   {func(_, c *Geometry) { c.Ranks = 3 }, Unsupported, "consumer's heads 4|multiple of the 3"},
		"ranks over odd heads":   {func(_, c *Geometry) { c.Ranks = 6 }, Unsupported, "consumer's heads 4|divisor of the 6"},
		"no cells":               {func(p, _ *Geometry) { p.CellHeads = 0 }, Unusable, "producer's cell_heads 0"},
		"cells too wide":         {func(_, c *Geometry) { c.Ranks = 4 }, Unusable, "consumer's cell_heads 2|the 1 heads"},
		"a consumer with stages": {func(_, c *Geometry) { c.Stages = 2 }, Unsupported, "consumer's stages 2|want 1"},
		"ranks neither divides": {func(p, c *Geometry) {
			p.Ranks, c.Ranks, p.Heads, c.Heads, p.CellHeads, c.CellHeads = 2, 3, 6, 6, 1, 1
		}, Unsupported, "producer's ranks 2|consumer's 3"},
		"another number of heads": {func(p, _ *Geometry) { p.Heads = 8 }, Mismatch, "producer's heads 8|consumer has 4"},
		"latent against heads": {func(p, _ *Geometry) { p.Heads, p.CellHeads = 0, 0 }, Mismatch,
			"producer's heads 0|consumer has 4"},
		"other cells":  {func(_, c *Geometry) { c.CellHeads = 1 }, Mismatch, "producer's cell_heads 2|consumer has 1"},
		"other blocks": {func(_, c *Geometry) { c.BlockTokens = 32 }, Mismatch, "producer's block_tokens 16|consumer has 32"},
		"a layer that the consumer lacks": {func(_, c *Geometry) { c.Layers[1].Number = 7 }, Mismatch,
			"producer's layers 1|no such layer"},
		"a layer of another group": {func(_, c *Geometry) { c.Layers[1].Group = 0 }, Mismatch,
			"producer's layers 1|group 1|group 0"},
		"a layer of all groups": {func(_, c *Geometry) { c.Layers[0].Group = Shared }, Mismatch,
			"producer's layers 0|group 0|group shared"},
		"a layer that the producer lacks": {func(p, _ *Geometry) { p.Layers = p.Layers[:2] }, Mismatch,
			"producer's layers 2|consumer has 3"},
	} {
		producer, consumer := side(), side()
		c.edit(producer, consumer)
		plan, err := MatchRanks(producer, consumer)
		refused(t, name, err, c.code, strings.Split(c.says, "|")...)
		if !plan.IsEmpty() || len(plan.layers) > 0 {
			t.Errorf("%s: there is a plan", name)
		}
	}
	if _, err := MatchRanks(side(), side()); err != nil {
		t.Errorf("without an edit: %v", err)
	}
}

// Lists of blocks that cannot be, of either side, and stretches that the producer does not have.
func TestRefusedBlocks(t *testing.T) {
	plan, err := MatchRanks(side(), side())
	if err != nil {
		t.Fatal(err)
	}
	four := []Blocks{{Group: 0, Logical: []uint32{0, 1}}, {Group: 1, Logical: []uint32{2, 3}}}
	for name, c := range map[string]struct {
		lists []Blocks
		says  string
	}{
		"a group that no layer has": {[]Blocks{{Group: Shared, Logical: []uint32{0}}}, "group 65535 65535|no layer"},
		"groups out of order":       {[]Blocks{four[1], four[0]}, "blocks of group 0 1|in order"},
		"a group twice":             {[]Blocks{four[0], four[0]}, "blocks of group 0 0|each once"},
		"a block too high":          {[]Blocks{{Logical: []uint32{3, 4}}}, "group 0 4|there are 4 logical blocks"},
		"a block that overflows":    {[]Blocks{{Logical: []uint32{1<<32 - 1}}}, "group 0 4294967295"},
		"a first within a block":    {[]Blocks{{First: 1, Logical: []uint32{0}}}, "group 0 1|no multiple of the 2"},
		"a first without bound":     {[]Blocks{{First: 1<<64 - 2, Logical: []uint32{0}}}, "group 0 18446744073709551614"},
		"an end at the first":       {[]Blocks{{First: 2, End: 2, Logical: []uint32{0}}}, "group 0 2|list nothing"},
		"an end behind the last":    {[]Blocks{{First: 2, End: 5, Logical: []uint32{0}}}, "group 0 5|blocks 2 to 3"},
		"an end of nothing":         {[]Blocks{{First: 2, End: 4}}, "group 0 4|of no blocks"},
	} {
		words := strings.Split(c.says, "|")
		_, err := plan.ConsumerPages(c.lists)
		refused(t, name, err, BadBlocks, append(words, "consumer's")...)
		if n, err := plan.CountPages(c.lists); n != 0 || err == nil {
			t.Errorf("%s: %d pages, %v", name, n, err)
		}
		_, err = plan.PairBlocks(four, c.lists)
		refused(t, name, err, BadBlocks, append(words, "consumer's")...)
		_, err = plan.PairBlocks(c.lists, nil)
		refused(t, name, err, BadBlocks, append(words, "producer's")...)
	}
	for name, c := range map[string]struct {
		have, want []Blocks
		says       string
	}{
		"before the producer's": {[]Blocks{{First: 2, Logical: []uint32{0, 1}}}, []Blocks{{Logical: []uint32{0, 1}}},
			"blocks 0 to 3|blocks 2 to 5"},
		"behind the producer's": {[]Blocks{{Logical: []uint32{0, 1}}}, []Blocks{{First: 2, Logical: []uint32{0, 1}}},
			"blocks 2 to 5|blocks 0 to 3"},
		"behind the producer's end": {[]Blocks{{End: 3, Logical: []uint32{0, 1}}}, four[:1], "blocks 0 to 3|blocks 0 to 2"},
		"of a group without blocks": {[]Blocks{{Group: 0}}, four[:1], "blocks 0 to 3|nothing"},
		"of a group without a list": {four[:1], four, "group 1|blocks 0 to 3|nothing"},
	} {
		_, err := plan.PairBlocks(c.have, c.want)
		refused(t, name, err, Uncovered, append(strings.Split(c.says, "|"), "consumer's", "producer has")...)
	}
	if x, err := plan.PairBlocks(four, four); err != nil || x.Len() != 32 {
		t.Errorf("without an edit: %d pairs, %v", x.Len(), err)
	}
}

// An empty list is nothing, with or without a position.
func TestNoBlocksAreNothing(t *testing.T) {
	plan, err := MatchRanks(side(), side())
	if err != nil {
		t.Fatal(err)
	}
	have := []Blocks{{Group: 0, Logical: []uint32{0, 1}}, {Group: 1, Logical: []uint32{2, 3}}}
	for _, want := range [][]Blocks{nil, {{Group: 0}}, {{Group: 0, First: 4}, {Group: 1, First: 3, End: 3}}} {
		pairs, err := plan.PairBlocks(have, want)
		if err != nil || pairs.Len() != 0 {
			t.Errorf("%v: %d pairs, %v", want, pairs.Len(), err)
		}
		for range pairs.All() {
			t.Errorf("%v: a pair", want)
		}
		pages, err := plan.ConsumerPages(want)
		for range pages.All() {
			t.Errorf("%v: a page", want)
		}
		if err != nil {
			t.Error(err)
		}
	}
}

// Sizes of the other engine that are none, and such of which neither divides the other.
func TestRefusedNeighbours(t *testing.T) {
	two := &Geometry{Ranks: 2, Rank: 1, Stages: 1}
	for name, c := range map[string]struct {
		err  func() error
		code Code
		says string
	}{
		"no producers": {func() error { _, err := ProducersOf(two, 0, 1); return err }, Unusable, "producer's ranks 0"},
		"no stages":    {func() error { _, err := ProducersOf(two, 2, 0); return err }, Unusable, "producer's stages 0"},
		"many stages":  {func() error { _, err := ProducersOf(two, 2, 1025); return err }, Unusable, "stages 1025"},
		"many ranks":   {func() error { _, err := ProducersOf(two, 4098, 1); return err }, Unusable, "ranks 4098"},
		"three ranks":  {func() error { _, err := ProducersOf(two, 3, 1); return err }, Unsupported, "producer's ranks 3"},
		"no consumers": {func() error { _, err := ConsumersOf(two, 0); return err }, Unusable, "consumer's ranks 0"},
		"three consumers": {func() error { _, err := ConsumersOf(two, 3); return err }, Unsupported,
			"consumer's ranks 3|producer's 2"},
		"no rank of its own": {func() error { _, err := ConsumersOf(&Geometry{}, 1); return err }, Unusable,
			"producer's rank 0"},
	} {
		refused(t, name, c.err(), c.code, strings.Split(c.says, "|")...)
	}
}

// What stages leave out, or have twice, is said by layer.
func TestCoverOfStages(t *testing.T) {
	consumer := side()
	stage := func(stage, rank uint32, layers ...Layer) Plan {
		p := side()
		p.Stages, p.Stage, p.Ranks, p.Rank, p.Layers = 2, stage, 2, rank, layers
		plan, err := MatchRanks(p, consumer)
		if err != nil {
			t.Fatal(err)
		}
		return plan
	}
	a, b, c := consumer.Layers[0], consumer.Layers[1], consumer.Layers[2]
	for name, x := range map[string]struct {
		plans []Plan
		code  Code
		says  string
	}{
		"no plans":      {nil, Uncovered, "layers 0"},
		"a stage lacks": {[]Plan{stage(0, 0, a, b), stage(0, 1, a, b)}, Uncovered, "layers 2"},
		"a rank lacks": {[]Plan{stage(0, 0, a, b), stage(0, 1, a, b), stage(1, 1, c)}, Uncovered,
			"layers 2"},
		"the last rank lacks": {[]Plan{stage(0, 0, a, b), stage(0, 1, a, b), stage(1, 0, c)}, Uncovered,
			"layers 2"},
		"twice": {[]Plan{stage(0, 0, a, b), stage(0, 1, a, b), stage(1, 0, b, c), stage(1, 1, b, c)}, Mismatch,
			"layers 1|two ranks"},
		"the last one twice": {[]Plan{stage(0, 0, a, b, c), stage(0, 1, a, b, c), stage(1, 1, c)}, Mismatch,
			"layers 2|two ranks"},
	} {
		refused(t, name, CheckCoverage(consumer, x.plans), x.code, strings.Split(x.says, "|")...)
	}
	if err := CheckCoverage(consumer, []Plan{stage(1, 0, c), stage(0, 1, b, a), stage(0, 0, a, b), stage(1, 1, c)}); err != nil {
		t.Error(err)
	}
	consumer.Ranks, consumer.CellHeads = 2, 2
	refused(t, "another rank", CheckCoverage(side(), []Plan{stage(0, 0, a)}), Mismatch, "consumer's rank 0")
}

// A walk over pairs takes no memory.
func TestPairsAllocateNothing(t *testing.T) {
	plan, err := MatchRanks(side(), side())
	if err != nil {
		t.Fatal(err)
	}
	lists := []Blocks{{Group: 0, Logical: []uint32{0, 1}}, {Group: 1, Logical: []uint32{2, 3}}}
	sum := uint32(0)
	n := testing.AllocsPerRun(100, func() {
		pairs, err := plan.PairBlocks(lists, lists)
		if err != nil {
			t.Fatal(err)
		}
		for from, to := range pairs.AllFrom(1) {
			sum += from + to
		}
		pages, err := plan.ConsumerPages(lists)
		if err != nil {
			t.Fatal(err)
		}
		for page := range pages.All() {
			sum += page
		}
	})
	if n > 0 || sum == 0 {
		t.Errorf("%v allocations, sum %d", n, sum)
	}
}

// A stage need not have blocks of groups that it has no layer of, and does of the others.
func TestStagesWithoutGroups(t *testing.T) {
	one := Geometry{Ranks: 1, Stages: 2, Blocks: 4, PerLogical: 1, BlockTokens: 1, Layers: []Layer{{Number: 0}}}
	all := one
	all.Stages, all.Layers = 1, []Layer{{Number: 0}, {Number: 1, Group: 1}}
	plan, err := MatchRanks(&one, &all)
	if err != nil {
		t.Fatal(err)
	}
	want := []Blocks{{Logical: []uint32{1}}, {Group: 1, Logical: []uint32{2, 3}}}
	if x, err := plan.PairBlocks(want[:1], want); err != nil || x.Len() != 1 {
		t.Errorf("%d pairs, %v", x.Len(), err)
	}
	_, err = plan.PairBlocks(want[1:], want)
	refused(t, "its own group", err, Uncovered, "group 0", "producer has nothing")
}
