package rank

import (
	"fmt"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/protocol"
)

// Work that one peer makes for others: what waits, and what is kept, is not walked for each chunk that comes or goes.

// stranger is the first of the numbers of what peers ask that are no machines here, and whose answers nobody reads.
const stranger = 1 << 40

var crowdsOfWork = []worldOfWork{
	{"gets that lose hope beside a request that waits", func(t *testing.T, w *workers, n int) {
		dies := w.connectPeer(1)
		w.requestPages(dies, "dies", w.keys[:n])
		w.requestPages(w.connectPeer(2), "waits", w.unrelatedKeys(n+1))
		for i := range n {
			w.engine(1, &engine.Get{Keys: w.keys[i : i+1], Wait: effects.Second})
		}
		w.push(1, &effects.LinkLost{Peer: dies})
		w.run()
		w.runDue(1)
		if s := w.ranks[1].Stats(); s.Gets != 0 || w.last[1].Code != effects.NotFound {
			t.Fatalf("%d gets are left, the last one ended as %v", s.Gets, w.last[1].Code)
		}
	}},
	{"request that waits for page after page", func(t *testing.T, w *workers, n int) {
		w.put(n, w.keys[:n], true)
		w.requestPages(w.connectPeer(1), "waits", w.unrelatedKeys(2*n))
		if s := w.ranks[1].Stats(); s.PendingRequests != 1 {
			t.Fatalf("%d requests wait", s.PendingRequests)
		}
		for i := range n {
			w.engine(1, &engine.Get{Request: []byte("r"), Keys: w.keys[i : i+1]})
			w.engine(1, &engine.Unpin{Got: w.ticket})
		}
		if s := w.ranks[1].Stats(); s.PendingRequests != 0 || s.PagesGranted != 2*n {
			t.Fatalf("%d requests wait, %d of %d pages are granted", s.PendingRequests, s.PagesGranted, 2*n)
		}
	}},
	{"delayed pull, of a sender that is out of reach as other chunks come", func(t *testing.T, w *workers, n int) {
		w.holdImports = true
		w.put(n, w.keys[:n], false)
		w.engine(1, &engine.Fetch{Keys: w.keys[:n]})
		others := w.unrelatedKeys(n)
		for i := range n {
			w.put(1, others[i:], false)
		}
		if len(w.heldImports) != 1 {
			t.Fatalf("%d imports wait", len(w.heldImports))
		}
		w.push(1, &effects.Imported{Corr: w.heldImports[0], Link: 2})
		w.run()
		w.wantAll(t, n)
	}},
	{"delayed pull, of one chunk that is offered again and again by a sender that is out of reach",
		func(t *testing.T, w *workers, n int) {
			w.holdImports = true
			w.put(1, w.keys[:1], false)
			w.engine(1, &engine.Fetch{Keys: w.keys[:1]})
			for range n {
				w.put(1, w.keys[:1], false)
			}
			if s := w.ranks[1].Stats(); s.Locations < n || len(w.heldImports) != 1 {
				t.Fatalf("%d locations, %d imports wait", s.Locations, len(w.heldImports))
			}
			w.push(1, &effects.Imported{Corr: w.heldImports[0], Link: 2})
			w.run()
			w.wantAll(t, 1)
		}},
	{"requests that expect one chunk, for which none comes in time", func(t *testing.T, w *workers, n int) {
		w.put(1, w.keys[:1], true)
		who := w.connectPeer(1)
		for i := range n {
			w.requestPages(who, fmt.Sprint(i), w.keys[:1])
		}
		if s := w.ranks[1].Stats(); s.Claims != n+1 {
			t.Fatalf("%d claims of %d requests", s.Claims, n+1)
		}
		w.now = effects.Time(w.ranks[1].cfg.ClaimTTL) + 1
		w.runDue(1)
		for i := range n {
			w.engine(1, &engine.Get{Request: fmt.Append(nil, i), Keys: w.keys[:1]})
			if d := w.last[1]; d.Code != effects.Lapsed {
				t.Fatalf("request %d ended as %v", i, d.Code)
			}
		}
	}},
}

// runDue steps a rank until it has no more work of this instant.
func (w *workers) runDue(rank int) {
	for at, any := w.ranks[rank].Deadline(); any && at <= w.now; at, any = w.ranks[rank].Deadline() {
		w.push(rank, &effects.Tick{})
		w.run()
	}
}

// unrelatedKeys are n keys that nobody else speaks of.
func (w *workers) unrelatedKeys(n int) (list [][]byte) {
	for i := range n {
		list = append(list, fmt.Appendf(nil, "m@1@0@%x@half", 1<<20+i))
	}
	return list
}

// hello is what such a peer says first.
func hello(who effects.Incarnation) []byte {
	m := protocol.HixlInitRequest{LocalID: []byte("p:1"), EngineID: []byte("p:1"), HasExt: true, Ext: protocol.HelloExt{
		ProtoMin: link.VersionMin, ProtoMax: link.VersionMax, Incarnation: protocol.UUID(who), PageBytes: 32, Layout: layout}}
	return m.Append(nil)
}

// connectPeer is a peer of the receiver that shook hands; n tells guests apart.
func (w *workers) connectPeer(n byte) effects.Incarnation {
	peer := effects.Incarnation{0xA0, n}
	w.sendMessage(effects.ChannelInit, hello(peer))
	r := w.ranks[1]
	v := env.Env{Now: w.now, Out: &effects.Effects{}, Pools: &r.pools, Pool: r.pools.Pool(0)}
	if _, code := r.links.IdentifyPeer(&v, &effects.Received{}, peer, r.cfg.Key.InboundName(peer)); code != effects.OK {
		w.t.Fatalf("guest %d was not let in", n)
	}
	return peer
}

// requestPages sends an AllocRequest to the receiver.
func (w *workers) requestPages(who effects.Incarnation, request string, keys [][]byte) {
	w.requestCount++
	w.sendMessage(effects.ChannelAlloc, w.allocRequest(who, request, keys, 1))
}

// allocRequest is such a request, of the newest operation.
func (w *workers) allocRequest(who effects.Incarnation, request string, keys [][]byte, attempt uint32) []byte {
	m := protocol.AllocRequest{Keys: keys, Format: layout.Format, Shape: layout.Shape, Dtype: layout.Dtype,
		LastChunkTokens: 4, HasExt: true, Ext: protocol.AllocExt{
			Version: link.VersionMax, Incarnation: protocol.UUID(who), To: protocol.UUID(w.ranks[1].cfg.Key.InboundName(who)),
			Operation: w.requestCount, Attempt: attempt, PatienceNS: uint64(effects.Second), Request: []byte(request)}}
	return m.Append(nil)
}

func (w *workers) sendMessage(channel effects.Channel, body []byte) {
	w.push(1, &effects.Received{Conn: 97, Channel: channel, Request: effects.Request(stranger + w.requestCount), Body: body})
	w.run()
}
