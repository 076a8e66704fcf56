//go:build cgo && linux

package nodes

import (
	"fmt"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime"
)

// modes are the ways in which chunks are moved.
var modes = []string{"push", "pull", "delay", "offload"}

// A wire is the connection of two NPUs.
type wire string

const (
	hccs wire = "HCCS"
	roce wire = "RoCE"
)

var wires = []wire{hccs, roce}

// serverName names the server of an NPU.
func (w wire) serverName(place int) string {
	if w == hccs {
		place = 0
	}
	return fmt.Sprint("server-", place)
}

// nodeAt returns a node at one end of the wire.
func (w wire) nodeAt(place int, role, mode string) nodeSpec {
	return nodeSpec{Role: role, Mode: mode, Place: place, Server: w.serverName(place)}
}

// A pair is a sender and a receiver in two processes.
type pair struct {
	t        *testing.T
	mode     string
	sender   *process
	receiver *process
	peer     runtime.Peer // the receiver
}

// newPair opens both. change may change their specs.
func (r *runDir) newPair(w wire, mode string, change func(sender, receiver *nodeSpec), settings ...string) *pair {
	r.t.Helper()
	s, d := w.nodeAt(0, "sender", mode), w.nodeAt(1, "receiver", mode)
	if change != nil {
		change(&s, &d)
	}
	p := &pair{t: r.t, mode: mode, sender: r.startProcess("the sender", settings...),
		receiver: r.startProcess("the receiver", settings...)}
	p.peer = p.receiver.openNode(d)
	p.sender.openNode(s)
	return p
}

// wantMoved puts chunks, which must arrive, and checks that all memory is freed.
func (p *pair) wantMoved(name string, n int) {
	p.t.Helper()
	keys := keysOf(name, n)
	p.sender.mustDo(order{Op: "put", Peer: p.peer, Keys: keys})
	p.wantFetched(keys)
	p.sender.mustDo(order{Op: "reclaim"})
}

// wantFetched makes the receiver's engine fetch chunks, all of which must exist and be right.
func (p *pair) wantFetched(keys []string) {
	p.t.Helper()
	op := "get"
	if p.mode == "delay" || p.mode == "offload" {
		op = "fetch"
	}
	if w := p.receiver.mustDo(order{Op: op, Keys: keys}); w.Hits != len(keys) || w.Wrong != 0 {
		p.t.Errorf("of %d chunks %d arrive, %d of them wrong", len(keys), w.Hits, w.Wrong)
	}
}

func (p *pair) closeBoth() {
	p.t.Helper()
	p.sender.closeNodes()
	p.receiver.closeNodes()
}

// Chunks of device memory arrive in device memory: in each mode, over each kind of link, with new and old libraries.
func TestChunksArrive(t *testing.T) {
	for name, hidden := range map[string][]string{"global": nil, "exchange": older} {
		for _, w := range wires {
			for _, mode := range modes {
				if mode == "offload" && w == hccs {
					continue // The chunks lie in host memory, which HCCS does not reach.
				}
				t.Run(fmt.Sprintf("%s %s %s", mode, w, name), func(t *testing.T) {
					t.Parallel()
					p := newRunDir(t, hidden...).newPair(w, mode, nil)
					p.wantMoved("first", 6)
					p.wantMoved("second", 2)
					p.closeBoth()
				})
			}
		}
	}
}

// Within a server, host memory can be reached if RoCE is used in place of HCCS. Otherwise the link is refused: chunks
// to be read at once are not read, and deferred chunks are missing.
func TestHostMemoryWithinAServer(t *testing.T) {
	t.Run("RoCE inside", func(t *testing.T) {
		t.Parallel()
		p := newRunDir(t).newPair(hccs, "offload", nil, "HCCL_INTRA_ROCE_ENABLE=1")
		p.wantMoved("chunks", 6)
		p.closeBoth()
	})
	for mode, want := range map[string]effects.Code{"pull": effects.Unreachable, "delay": effects.OK} {
		t.Run("HCCS "+mode, func(t *testing.T) {
			t.Parallel()
			p := newRunDir(t).newPair(hccs, "offload", func(s, r *nodeSpec) {
				r.Mode, r.Lease, s.Lease = mode, 2*time.Second,
					2*time.Second
			})
			keys := keysOf("chunks", 2)
			if w := p.sender.ask(order{Op: "put", Peer: p.peer, Keys: keys}); w.Code != want {
				t.Errorf("the put ended as %v (%s), want %v", w.Code, w.Text, want)
			}
			if w := p.receiver.ask(order{Op: "fetch", Keys: keys, Timeout: time.Second}); mode == "delay" &&
				(w.Hits != 0 || w.Code != effects.NotFound) {
				t.Errorf("%d chunks were fetched: %v (%s)", w.Hits, w.Code, w.Text)
			}
			p.sender.mustDo(order{Op: "reclaim"})
			p.closeBoth()
		})
	}
}

// Two ranks of a sender live in one process, on two NPUs, and two ranks of a receiver in another.
func TestRanksOfOneProcess(t *testing.T) {
	for _, w := range wires {
		for _, mode := range []string{"push", "pull"} {
			t.Run(fmt.Sprint(mode, " ", w), func(t *testing.T) {
				t.Parallel()
				r := newRunDir(t)
				senders, receivers := r.startProcess("the senders"), r.startProcess("the receivers")
				var puts [2]<-chan reply
				for rank := range puts {
					to, from := w.nodeAt(2+rank, "receiver", mode), w.nodeAt(rank, "sender", mode)
					to.Device, to.Rank, from.Device, from.Rank = rank, rank, rank, rank
					if w == roce {
						to.Server, from.Server = "server-receivers", "server-senders"
					}
					peer := receivers.openNode(to)
					senders.openNode(from)
					puts[rank] = senders.sendOrder(order{Op: "put", Node: rank, Peer: peer, Keys: keysOf(fmt.Sprint("rank", rank), 6)})
				}
				for rank, put := range puts {
					if w := senders.awaitReply(put, "put"); w.Code != effects.OK {
						t.Errorf("rank %d: %v (%s)", rank, w.Code, w.Text)
					}
					if w := receivers.mustDo(order{Op: "get", Node: rank, Keys: keysOf(fmt.Sprint("rank", rank), 6)}); w.Hits != 6 ||
						w.Wrong != 0 {
						t.Errorf("rank %d: of 6 chunks %d arrive, %d of them wrong", rank, w.Hits, w.Wrong)
					}
					senders.mustDo(order{Op: "reclaim", Node: rank})
				}
				senders.closeNodes(0, 1)
				receivers.closeNodes(0, 1)
			})
		}
	}
}
