package recall

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
)

// phaseNames are the names of the phases for operators.
//
//kvferry:table
var phaseNames = [recallPhaseCount]string{"waiting", "query", "wire", "settling", "done queued", "done sent"}

// EachOperation calls visit with every recall, in the order of the slots.
func (f *Source) EachOperation(visit func(*kernel.Operation)) {
	for slot := range f.rows.Slots() {
		r := f.rows.Get(f.rows.At(slot))
		if r == nil {
			continue
		}
		op := kernel.Operation{
			Kind: "recall", Stage: phaseNames[r.phase], Outbound: r.peer, Peer: r.peerID, Chunks: r.keyCount(), Pages: len(r.Pages),
			Addr:  effects.Addr{Host: r.peerAddr.Host, Port: r.peerAddr.InitPort},
			Since: r.Began(), Until: r.Deadline, Delivered: r.IsDelivered(),
		}
		if r.readGrant != 0 {
			op.FromPeer = int(r.hits)
		}
		visit(&op)
	}
}
