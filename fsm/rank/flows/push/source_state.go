package push

import (
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/flows/put"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// Fits is how many of these chunks, from the first on, one put can take: no more than a command may have, their keys in
// one AllocRequest, and their pages in the answer to it, whose receiver is taken to accept what we do.
func (f *Source) Fits(cfg *flow.Config, keys [][]byte) int {
	most := min(len(keys), int(cfg.BatchMax))
	ask, answer := put.HeadBytes, put.HeadBytes
	for i, key := range keys[:most] {
		ask += len(key) + put.KeyHeadBytes
		answer += put.PlaceBytes
		if max(ask, answer) > cfg.Wire.MessageBytes {
			return i
		}
	}
	return most
}

// askBytes is the most that an AllocRequest of a put has beside the chunks themselves.
func (p *outgoing) askBytes() uint64 {
	return put.HeadBytes + uint64(p.KeyBytes()) + put.KeyHeadBytes*uint64(p.Size())
}

// Tables shows the puts; to look at only.
func (f *Source) Tables(visit table.Visit) { visit("puts", f.puts.Len(), table.Empty) }

// State is that of the put that a Ref is for.
func (f *Source) State(_ *flow.Rooms, ref kernel.Ref) uint16 {
	p := f.puts.Get(ref.Subject)
	if p == nil {
		return uint16(put.Gone)
	}
	return uint16(p.State([...]put.State{
		sourceWaiting: put.Waiting, sourceAsking: put.Asking, sourceMoving: put.Moving, sourceSettling: put.Settling,
		sourceCommitting: put.Committing, sourceConfirming: put.Confirming,
	}[p.phase]))
}
