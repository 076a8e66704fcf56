package p2p

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
)

// phaseNames are the names of the phases of a get for operators.
//
//kvferry:table
var phaseNames = [getPhaseCount]string{"waiting", "query", "wire", "settling", "done queued", "done sent", "loan kept", "verifying"}

// EachOperation calls visit with every get from a peer, and then with every search that has no get in progress, each in
// the order of the slots.
func (f *Requester) EachOperation(visit func(*kernel.Operation)) {
	for slot := range f.gets.Slots() {
		r := f.gets.Get(f.gets.At(slot))
		if r == nil {
			continue
		}
		op := kernel.Operation{
			Kind: "shared get", Stage: phaseNames[r.phase], Outbound: r.peer, Peer: r.peerID, Chunks: r.keyCount(),
			Addr:  effects.Addr{Host: r.peerAddr.Host, Port: r.peerAddr.InitPort},
			Since: r.deadline.Add(-r.timeout), Until: r.deadline, Delivered: r.delivered,
		}
		if r.readGrant != 0 {
			op.FromPeer = int(r.lentChunks)
		}
		visit(&op)
	}
	for slot := range f.Searches.rows.Slots() {
		if s := f.Searches.rows.Get(f.Searches.rows.At(slot)); s != nil && s.activeGet == 0 {
			visit(&kernel.Operation{Kind: "shared get", Stage: "search", Chunks: s.keyCount(), Since: s.since, Until: s.deadline})
		}
	}
}

// EachBreaker calls visit with the circuit breaker of every peer that did not reply in time.
func (f *Requester) EachBreaker(visit func(*link.BreakerInfo)) { f.breakers.EachBreaker(visit) }
