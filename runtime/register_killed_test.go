package runtime_test

import (
	"syscall"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/internal/proctest"
)

// killedBlocks are those of requests whose producer is a process of its own.
var killedBlocks = []uint32{5, 6}

// One of two producer ranks is killed half-way: what it was to write fails, and with it the whole reception, which is
// never seen in part. The blocks go back, and serve the next request from the rank that was started again.
func TestRegisteredProducerDies(t *testing.T) {
	for name, at := range map[string]strike{
		"before it is asked":               {At: "*effects.Received"},
		"before it takes the registration": {After: "*effects.Reply", At: "*effects.Received"},
		"before it writes":                 {At: "*effects.Transfer"},
		"behind its write":                 {At: "*effects.TransferDone"},
		"before its peer stores":           {At: "*effects.Landed", There: true},
	} {
		for _, channel := range []string{"shm", "tcp"} {
			t.Run(channel+" "+name, func(t *testing.T) {
				t.Parallel()
				here := engineRank{worker{Engine: "p", Ranks: 2, Rank: 0, Stages: 1, Stage: 0}, nil}
				here.Node = open(t, here.config(t, channel))
				there := worker{Engine: "p", Ranks: 2, Rank: 1, Stages: 1, Stage: 0}
				d := engineRank{worker{Engine: "d", Ranks: 1, Rank: 0, Stages: 1, Stage: 0}, nil}
				d.Node = open(t, d.config(t, channel))
				o := order{Role: "worker", Channel: channel, Worker: &there}
				if !at.There {
					o.Strike = at
					o.Strike.Signal = syscall.SIGKILL
				}
				start := func(o order) (*process, map[[2]uint32]runtime.ProducerPeer) {
					p := &process{proctest.Start(t, proctest.SelfCommand(childRole+"=1")), t}
					o.Op = "open"
					return p, map[[2]uint32]runtime.ProducerPeer{{0, 0}: producerPeerOf(here.Node), {0, 1}: p.perform(o).Finishes}
				}
				finish := func(p *process, id string) {
					here.computes(t, here.Node, id, 0, killedBlocks)
					if _, err := here.Producer().LendBlocks(t.Context(), runtime.FinishedRequest{
						Request: id + "-00000002", Blocks: blocksOf(0, killedBlocks)}); err != nil {
						t.Fatal(err)
					}
					p.perform(order{Op: "finish", Worker: &there, Keys: []string{id}})
				}
				registers := func(at map[[2]uint32]runtime.ProducerPeer, id string) runtime.ReceptionResult {
					r, err := d.Consumer().Register(t.Context(),
						d.registration(t, d.Node, here.worker, at, id, 0, []uint32{9, 1}))
					if err != nil {
						t.Fatal(err)
					}
					got := outcome(t, r.Done())
					awaitReturned(t, r.Returned())
					return got
				}
				p, peers := start(o)
				if at.There {
					hit := at.arm(p.Kill)
					d.Watch(func(ev effects.Event) {
						if l, is := ev.(*effects.Landed); !is || l.Peer != here.Incarnation() {
							hit(ev)
						}
					}, func(effects.Effect) {})
				}
				finish(p, "lost")
				got := registers(peers, "lost")
				if got.Err == nil {
					if n := d.countWrong(t, d.Node, "lost", 0, []uint32{9, 1}); n != 0 {
						t.Errorf("it ends well with %d wrong parts", n)
					}
				}
				if at.At == "*effects.Transfer" && got.Err == nil {
					t.Error("it ends well, and one rank wrote nothing")
				}
				waitFor(t, d.Node, "the end of what is said of registrations", nothingRegistered)
				waitFor(t, here.Node, "the end of what is said of registrations", nothingRegistered)

				p, peers = start(order{Role: "worker", Channel: channel, Worker: &there})
				finish(p, "again")
				if got := registers(peers, "again"); got.Err != nil || d.countWrong(t, d.Node, "again", 0, []uint32{9, 1}) != 0 {
					t.Errorf("from the one that was started again: %+v", got)
				}
				p.closeNode()
				endAll(t, d, here)
			})
		}
	}
}
