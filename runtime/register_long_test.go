package runtime_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
)

// A request of more pages than a batch has chunks goes in one registration: 2,304 blocks of 64 layers are 147,456 of
// them.
func TestRegistrationOfManyPages(t *testing.T) {
	const layers, blocks = 64, 2304
	opened := func(name string) *runtime.Node {
		text := fmt.Sprintf(registerText, "shm", layers, 4, name, 1, 0, 1, 0, 0, "")
		larger := strings.NewReplacer("cell_heads: 1", "cell_heads: 4", "blocks: 16", fmt.Sprint("blocks: ", blocks))
		cfg, err := config.Parse("test", []byte(larger.Replace(text)), nil)
		if err != nil {
			t.Fatal(err)
		}
		cfg.InitPorts[0], cfg.AllocPorts[0] = 0, 0
		return open(t, cfg)
	}
	p, d := opened("p"), opened("d")
	list := make([]uint32, blocks)
	for i := range list {
		list[i] = uint32(i)
	}
	for layer := range layers {
		for _, block := range []int{0, blocks / 2, blocks - 1} {
			b, err := p.BlockBytes(layer, block)
			if err != nil {
				t.Fatal(err)
			}
			contentOf(b, cacheName("long", block, layer, 0))
		}
	}
	taken, err := d.Consumer().Register(t.Context(), runtime.Registration{
		Request: "long-00000001", Engine: "p", Ranks: 1, Stages: 1, Blocks: blocksOf(0, list),
		Producers: []runtime.ProducerPeer{producerPeerOf(p)},
	})
	if err != nil {
		t.Fatal(err)
	}
	lent, err := p.Producer().LendBlocks(t.Context(), runtime.FinishedRequest{Request: "long-00000002", Blocks: blocksOf(0, list)})
	if err != nil {
		t.Fatal(err)
	}
	if got := outcome(t, taken.Done()); got.Err != nil || got.Pages != layers*blocks {
		t.Fatalf("%+v", got)
	}
	awaitReturned(t, taken.Returned())
	if got := outcome(t, lent.Done()); got.Err != nil || got.Pages != layers*blocks {
		t.Fatalf("%+v", got)
	}
	awaitReturned(t, lent.Returned())
	for layer := range layers {
		for _, block := range []int{0, blocks / 2, blocks - 1} {
			b, err := d.BlockBytes(layer, block)
			if err != nil {
				t.Fatal(err)
			}
			if !isContent(b, cacheName("long", block, layer, 0)) {
				t.Errorf("layer %d of block %d is not what was computed", layer, block)
			}
		}
	}
	endAll(t, engineRank{Node: p}, engineRank{Node: d})
}
