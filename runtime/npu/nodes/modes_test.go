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

// server names the server of an NPU.
func (w wire) server(place int) string {
	if w == hccs {
		place = 0
	}
	return fmt.Sprint("server-", place)
}

// at returns a node at one end of the wire.
func (w wire) at(place int, role, mode string) spec {
	return spec{Role: role, Mode: mode, Place: place, Server: w.server(place)}
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
func (r *room) newPair(w wire, mode string, change func(sender, receiver *spec), settings ...string) *pair {
	r.t.Helper()
	s, d := w.at(0, "sender", mode), w.at(1, "receiver", mode)
	if change != nil {
		change(&s, &d)
	}
	p := &pair{t: r.t, mode: mode, sender: r.start("the sender", settings...),
		receiver: r.start("the receiver", settings...)}
	p.peer = p.receiver.opens(d)
	p.sender.opens(s)
	return p
}

// moves puts chunks, which must arrive, and checks that all memory is freed.
func (p *pair) moves(name string, n int) {
	p.t.Helper()
	keys := keysOf(name, n)
	p.sender.does(order{Op: "put", Peer: p.peer, Keys: keys})
	p.takes(keys)
	p.sender.does(order{Op: "reclaim"})
}

// takes makes the receiver's engine fetch chunks, all of which must exist and be right.
func (p *pair) takes(keys []string) {
	p.t.Helper()
	op := "get"
	if p.mode == "delay" || p.mode == "offload" {
		op = "fetch"
	}
	if w := p.receiver.does(order{Op: op, Keys: keys}); w.Hits != len(keys) || w.Wrong != 0 {
		p.t.Errorf("of %d chunks %d arrive, %d of them wrong", len(keys), w.Hits, w.Wrong)
	}
}

func (p *pair) close() {
	p.t.Helper()
	p.sender.closes()
	p.receiver.closes()
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
					p := newRoom(t, hidden...).newPair(w, mode, nil)
					p.moves("first", 6)
					p.moves("second", 2)
					p.close()
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
		p := newRoom(t).newPair(hccs, "offload", nil, "HCCL_INTRA_ROCE_ENABLE=1")
		p.moves("chunks", 6)
		p.close()
	})
	for mode, want := range map[string]effects.Code{"pull": effects.Unreachable, "delay": effects.OK} {
		t.Run("HCCS "+mode, func(t *testing.T) {
			t.Parallel()
			p := newRoom(t).newPair(hccs, "offload", func(s, r *spec) {
				r.Mode, r.Lease, s.Lease = mode, 2*time.Second,
					2*time.Second
			})
			keys := keysOf("chunks", 2)
			if w := p.sender.asked(order{Op: "put", Peer: p.peer, Keys: keys}); w.Code != want {
				t.Errorf("the put ended as %v (%s), want %v", w.Code, w.Text, want)
			}
			if w := p.receiver.asked(order{Op: "fetch", Keys: keys, Patience: time.Second}); mode == "delay" &&
				(w.Hits != 0 || w.Code != effects.NotFound) {
				t.Errorf("%d chunks were fetched: %v (%s)", w.Hits, w.Code, w.Text)
			}
			p.sender.does(order{Op: "reclaim"})
			p.close()
		})
	}
}

// Two ranks of a sender live in one process, on two NPUs, and two ranks of a receiver in another.
func TestRanksOfOneProcess(t *testing.T) {
	for _, w := range wires {
		for _, mode := range []string{"push", "pull"} {
			t.Run(fmt.Sprint(mode, " ", w), func(t *testing.T) {
				t.Parallel()
				r := newRoom(t)
				senders, receivers := r.start("the senders"), r.start("the receivers")
				var puts [2]<-chan word
				for rank := range puts {
					to, from := w.at(2+rank, "receiver", mode), w.at(rank, "sender", mode)
					to.Device, to.Rank, from.Device, from.Rank = rank, rank, rank, rank
					if w == roce {
						to.Server, from.Server = "server-receivers", "server-senders"
					}
					peer := receivers.opens(to)
					senders.opens(from)
					puts[rank] = senders.begin(order{Op: "put", Seat: rank, Peer: peer, Keys: keysOf(fmt.Sprint("rank", rank), 6)})
				}
				for rank, put := range puts {
					if w := senders.hear(put, "put"); w.Code != effects.OK {
						t.Errorf("rank %d: %v (%s)", rank, w.Code, w.Text)
					}
					if w := receivers.does(order{Op: "get", Seat: rank, Keys: keysOf(fmt.Sprint("rank", rank), 6)}); w.Hits != 6 ||
						w.Wrong != 0 {
						t.Errorf("rank %d: of 6 chunks %d arrive, %d of them wrong", rank, w.Hits, w.Wrong)
					}
					senders.does(order{Op: "reclaim", Seat: rank})
				}
				senders.closes(0, 1)
				receivers.closes(0, 1)
			})
		}
	}
}
