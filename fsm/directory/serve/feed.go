package serve

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/directory"
	"github.com/kvferry/kvferry/protocol"
)

// operations handles a message with operations at a location.
func (m *Machine) operations(h *heard) {
	x := &m.read.operations
	if !m.decode(h, x) {
		return
	}
	m.read.changes = m.read.changes[:0]
	for i := range x.Operations {
		op := &x.Operations[i]
		m.read.changes = append(m.read.changes, directory.Operation{
			Evict: op.Type == protocol.OpEvict, Hash: op.Key.Bits, Sequence: op.Seq,
		})
	}
	m.operate(h, x, &x.Worker, &directory.Report{
		Sender: h.sender(&x.Worker, x.Incarnation), Location: x.Location, Operations: m.read.changes,
	})
}

// operation handles a message with a single operation. If the operation has no number, the message's field is 0 or
// missing.
func (m *Machine) operation(h *heard, tag protocol.Tag) {
	var x protocol.KVAdmitMsg
	evict := tag == protocol.TagKVEvictMsg
	if evict && !m.decode(h, (*protocol.KVEvictMsg)(&x)) || !evict && !m.decode(h, &x) {
		return
	}
	m.read.changes = append(m.read.changes[:0], directory.Operation{Evict: evict, Hash: x.Key.Bits, Sequence: x.Seq})
	var told protocol.Message = &x
	if evict {
		told = (*protocol.KVEvictMsg)(&x)
	}
	m.operate(h, told, &x.Worker, &directory.Report{
		Sender: h.sender(&x.Worker, protocol.UUID{}), Location: x.Location, Operations: m.read.changes,
		Unnumbered: x.Seq == 0,
	})
}

// operate passes operations to the directory. If operations are missing before the reported ones (Mismatch), the
// message is not refused: the directory will request a full sync.
func (m *Machine) operate(h *heard, x protocol.Message, w *protocol.Worker, r *directory.Report) {
	code := m.known.Operate(h.now, r)
	if code != effects.OK && code != effects.Mismatch {
		m.refuse(h, code, about(w, "operations", code))
	}
	m.tells(h, code, x)
}

// syncBegins handles a request to begin a full sync of a location. The reply says whether the sync was accepted.
func (m *Machine) syncBegins(h *heard) {
	var x protocol.FullSyncStartMsg
	if !m.decode(h, &x) {
		return
	}
	code := m.known.BeginSync(h.now, &directory.SyncBegin{
		Sender: h.sender(&x.Worker, x.Incarnation), Location: x.Location, ID: x.SyncID, Batches: int64(x.BatchCount),
		Next: x.Next, Numbered: x.Numbered,
	})
	if code == effects.OK {
		m.tells(h, code, &x)
	}
	answer := protocol.FullSyncStartRetMsg{SyncID: x.SyncID, Accepted: code == effects.OK}
	if code != effects.OK {
		answer.ErrorMsg = []byte(code.String())
		m.dropped(h, code, about(&x.Worker, "full sync", code))
	}
	h.reply(answer.Append(h.out.Arena()))
}

// syncBatch handles a batch of a full sync.
func (m *Machine) syncBatch(h *heard) {
	x := &m.read.batch
	if !m.decode(h, x) {
		return
	}
	code := m.known.SyncBatch(h.now, &directory.SyncBatch{
		Sender: h.sender(&x.Worker, x.Incarnation), Location: x.Location, ID: x.SyncID, Batch: int64(x.BatchID),
		Hashes: m.bits(x.Keys),
	})
	if code != effects.OK {
		m.refuse(h, code, about(&x.Worker, "batch of a full sync", code))
	}
	m.tells(h, code, x)
}

// syncEnds handles the end of a full sync. If the number of chunks differs from the worker's count (Mismatch), the
// message is not refused.
func (m *Machine) syncEnds(h *heard) {
	var x protocol.FullSyncEndMsg
	if !m.decode(h, &x) {
		return
	}
	code := m.known.EndSync(h.now, &directory.SyncEnd{
		Sender: h.sender(&x.Worker, x.Incarnation), Location: x.Location, ID: x.SyncID,
		Chunks: int64(min(x.ActualTotalKeys, 1<<63-1)),
	})
	if code != effects.OK && code != effects.Mismatch {
		m.refuse(h, code, about(&x.Worker, "end of a full sync", code))
	}
	m.tells(h, code, &x)
}

// missingMost limits the number of missing batches in a status reply.
const missingMost = 256

// syncStatus handles a status request for a full sync. For an unknown sync the reply says that the worker need not
// wait.
func (m *Machine) syncStatus(h *heard) {
	var x protocol.FullSyncStatusMsg
	if !m.decode(h, &x) {
		return
	}
	if m.read.missing == nil {
		m.read.missing = make([]int64, 0, missingMost)
	}
	p, code := m.known.SyncStatus(h.now, h.sender(&x.Worker, protocol.UUID{}), x.SyncID, m.read.missing[:0])
	if code != effects.OK && code != effects.NotFound {
		m.refuse(h, code, about(&x.Worker, "status of a full sync", code))
		return
	}
	answer := protocol.FullSyncStatusRetMsg{
		SyncID: x.SyncID, IsComplete: p.Complete, CanExitFreeze: p.Resume, MissingBatches: p.Missing,
	}
	answer.SetProgress(p.Done)
	h.reply(answer.Append(h.out.Arena()))
}

// bits returns the hashes as the directory stores them: the same 64 bits, whether the fleet's hashes are signed or
// not.
func (m *Machine) bits(keys []protocol.ChunkHash) []uint64 {
	m.read.hashes = m.read.hashes[:0]
	for _, k := range keys {
		m.read.hashes = append(m.read.hashes, k.Bits)
	}
	return m.read.hashes
}
