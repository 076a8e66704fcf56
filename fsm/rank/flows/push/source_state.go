package push

import (
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/flows/put"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// CountFitting returns how many of the given chunks, from the first on, one put can take: at most as many as one
// command may name, with all keys in one AllocRequest and all pages in the reply. The receiver is assumed to accept
// messages as long as this rank does.
func (f *Source) CountFitting(cfg *flow.Config, keys [][]byte) int {
	limit := min(len(keys), int(cfg.BatchMax))
	requestBytes, replyBytes := put.HeadBytes, put.HeadBytes
	for i, key := range keys[:limit] {
		requestBytes += len(key) + put.KeyHeadBytes
		replyBytes += put.PageNameBytes
		if max(requestBytes, replyBytes) > cfg.Wire.MessageBytes {
			return i
		}
	}
	return limit
}

// requestBytes returns an upper bound of the length of the put's AllocRequest, in bytes, without the chunks that it
// carries.
func (p *putRow) requestBytes() uint64 {
	return put.HeadBytes + uint64(p.KeyBytes()) + put.KeyHeadBytes*uint64(p.Size())
}

// VisitTables visits the table of puts, for inspection only.
func (f *Source) VisitTables(visit table.VisitFunc) { visit("puts", f.puts.Len(), table.Empty) }

// RowState returns the state of the put that ref names.
func (f *Source) RowState(_ *flow.Rooms, ref kernel.Ref) uint16 {
	p := f.puts.Get(ref.Subject)
	if p == nil {
		return uint16(put.NoRow)
	}
	return uint16(p.StateAt([...]put.State{
		putWaiting: put.Waiting, putRequesting: put.Requesting, putWriting: put.Writing, putSettling: put.Settling,
		putCommitting: put.Committing, putConfirming: put.Confirming,
	}[p.phase]))
}
