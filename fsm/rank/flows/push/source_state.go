package push

import (
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/flows/put"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// Fits returns how many of the given chunks, from the first on, one put can take: at most as many as one command
// may name, with all keys in one AllocRequest and all pages in the reply. The receiver is assumed to accept
// messages as long as this rank does.
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

// askBytes returns an upper bound of the length of the put's AllocRequest, in bytes, without the chunks that it
// carries.
func (p *outgoing) askBytes() uint64 {
	return put.HeadBytes + uint64(p.KeyBytes()) + put.KeyHeadBytes*uint64(p.Size())
}

// Tables visits the table of puts, for inspection only.
func (f *Source) Tables(visit table.Visit) { visit("puts", f.puts.Len(), table.Empty) }

// State returns the state of the put that ref names.
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
