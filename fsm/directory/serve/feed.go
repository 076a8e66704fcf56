package serve

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/directory"
	"github.com/kvferry/kvferry/protocol"
)

// handleOperations handles a message with operations at a location.
func (m *Machine) handleOperations(h *receivedMessage) {
	x := &m.messages.operations
	if !m.decodeMessage(h, x) {
		return
	}
	m.messages.changes = m.messages.changes[:0]
	for i := range x.Operations {
		op := &x.Operations[i]
		m.messages.changes = append(m.messages.changes, directory.Operation{
			Evict: op.Type == protocol.OpEvict, Hash: op.Key.Bits, Sequence: op.Seq,
		})
	}
	m.applyReport(h, x, &x.Worker, &directory.Report{
		Sender: h.senderOf(&x.Worker, x.Incarnation), Location: x.Location, Operations: m.messages.changes,
	})
}

// handleOperation handles a message with a single operation. If the operation has no number, the message's field is 0
// or missing.
func (m *Machine) handleOperation(h *receivedMessage, tag protocol.Tag) {
	var x protocol.KVAdmitMsg
	evict := tag == protocol.TagKVEvictMsg
	if evict && !m.decodeMessage(h, (*protocol.KVEvictMsg)(&x)) || !evict && !m.decodeMessage(h, &x) {
		return
	}
	m.messages.changes = append(m.messages.changes[:0], directory.Operation{Evict: evict, Hash: x.Key.Bits, Sequence: x.Seq})
	var msg protocol.Message = &x
	if evict {
		msg = (*protocol.KVEvictMsg)(&x)
	}
	m.applyReport(h, msg, &x.Worker, &directory.Report{
		Sender: h.senderOf(&x.Worker, protocol.UUID{}), Location: x.Location, Operations: m.messages.changes,
		Unnumbered: x.Seq == 0,
	})
}

// applyReport passes operations to the directory. If operations are missing before the reported ones (Mismatch), the
// message is not refused: the directory will request a full sync.
func (m *Machine) applyReport(h *receivedMessage, x protocol.Message, w *protocol.Worker, r *directory.Report) {
	code := m.directory.ApplyReport(h.now, r)
	if code != effects.OK && code != effects.Mismatch {
		m.refuseMessage(h, code, describeRefusal(w, "operations", code))
	}
	m.replicateMessage(h, code, x)
}

// handleSyncBegin handles a request to begin a full sync of a location. The reply says whether the sync was accepted.
func (m *Machine) handleSyncBegin(h *receivedMessage) {
	var x protocol.FullSyncStartMsg
	if !m.decodeMessage(h, &x) {
		return
	}
	code := m.directory.BeginSync(h.now, &directory.SyncBegin{
		Sender: h.senderOf(&x.Worker, x.Incarnation), Location: x.Location, ID: x.SyncID, Batches: int64(x.BatchCount),
		NextSequence: x.Next, Numbered: x.Numbered,
	})
	if code == effects.OK {
		m.replicateMessage(h, code, &x)
	}
	answer := protocol.FullSyncStartRetMsg{SyncID: x.SyncID, Accepted: code == effects.OK}
	if code != effects.OK {
		answer.ErrorMsg = []byte(code.String())
		m.reportRefusal(h, code, describeRefusal(&x.Worker, "full sync", code))
	}
	h.sendReply(answer.Append(h.out.Arena()))
}

// handleSyncBatch handles a batch of a full sync.
func (m *Machine) handleSyncBatch(h *receivedMessage) {
	x := &m.messages.batch
	if !m.decodeMessage(h, x) {
		return
	}
	code := m.directory.AddSyncBatch(h.now, &directory.SyncBatch{
		Sender: h.senderOf(&x.Worker, x.Incarnation), Location: x.Location, ID: x.SyncID, Batch: int64(x.BatchID),
		Hashes: m.hashBits(x.Keys),
	})
	if code != effects.OK {
		m.refuseMessage(h, code, describeRefusal(&x.Worker, "batch of a full sync", code))
	}
	m.replicateMessage(h, code, x)
}

// handleSyncEnd handles the end of a full sync. If the number of chunks differs from the worker's count (Mismatch), the
// message is not refused.
func (m *Machine) handleSyncEnd(h *receivedMessage) {
	var x protocol.FullSyncEndMsg
	if !m.decodeMessage(h, &x) {
		return
	}
	code := m.directory.EndSync(h.now, &directory.SyncEnd{
		Sender: h.senderOf(&x.Worker, x.Incarnation), Location: x.Location, ID: x.SyncID,
		Chunks: int64(min(x.ActualTotalKeys, 1<<63-1)),
	})
	if code != effects.OK && code != effects.Mismatch {
		m.refuseMessage(h, code, describeRefusal(&x.Worker, "end of a full sync", code))
	}
	m.replicateMessage(h, code, &x)
}

// maxMissing limits the number of missing batches in a status reply.
const maxMissing = 256

// handleSyncStatus handles a status request for a full sync. For an unknown sync the reply says that the worker need
// not wait.
func (m *Machine) handleSyncStatus(h *receivedMessage) {
	var x protocol.FullSyncStatusMsg
	if !m.decodeMessage(h, &x) {
		return
	}
	if m.messages.missing == nil {
		m.messages.missing = make([]int64, 0, maxMissing)
	}
	p, code := m.directory.SyncStatus(h.now, h.senderOf(&x.Worker, protocol.UUID{}), x.SyncID, m.messages.missing[:0])
	if code != effects.OK && code != effects.NotFound {
		m.refuseMessage(h, code, describeRefusal(&x.Worker, "status of a full sync", code))
		return
	}
	answer := protocol.FullSyncStatusRetMsg{
		SyncID: x.SyncID, IsComplete: p.Complete, CanExitFreeze: p.Resume, MissingBatches: p.Missing,
	}
	answer.SetProgress(p.Done)
	h.sendReply(answer.Append(h.out.Arena()))
}

// hashBits returns the hashes as the directory stores them: the same 64 bits, whether the fleet's hashes are signed or
// not.
func (m *Machine) hashBits(keys []protocol.ChunkHash) []uint64 {
	m.messages.hashes = m.messages.hashes[:0]
	for _, k := range keys {
		m.messages.hashes = append(m.messages.hashes, k.Bits)
	}
	return m.messages.hashes
}
