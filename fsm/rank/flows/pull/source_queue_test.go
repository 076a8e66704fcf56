package pull

import (
	"testing"

	"github.com/kvferry/kvferry/fsm/prng"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/memory"
	"github.com/kvferry/kvferry/fsm/table"
)

// A peer whose put may be offered keeps its place in the line for room until the put is offered: a step without work
// left for that would give the place to another peer.
func TestPlaceKeptUntilOffered(t *testing.T) {
	peers := table.NewSlab[int](2)
	first, _ := peers.Add()
	second, _ := peers.Add()
	pools := memory.New(1, 1, prng.Shuffle{}, memory.PoolConfig{Pages: 4, ClassShare: 4})
	var e flow.Env
	e.Pools, e.Pool = &pools, pools.Pool(0)
	f := Source{cfg: SourceConfig{PagesMax: 4}, roomQueue: roomQueue{isWaiting: make([]bool, 8)}}
	f.waitForRoom(first)
	f.waitForRoom(second)
	p := new(putRow)
	p.Peer = first
	if !f.mayOffer(&e, p) {
		t.Fatal("there is room, and no peer stands before it")
	}
	if f.mayTakeRoom(second) {
		t.Error("a peer passes the one before it, whose put was not offered yet")
	}
}
