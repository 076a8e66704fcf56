package serve

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/directory"
	"github.com/kvferry/kvferry/protocol"
)

// operations follows what came to a location and went from it.
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

// operation follows one that is told by itself. Where it has no number its field holds 0, or is not there.
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

// operate tells the directory. That operations are missing is no reason to refuse those that came: the directory has
// them told anew.
func (m *Machine) operate(h *heard, x protocol.Message, w *protocol.Worker, r *directory.Report) {
	code := m.known.Operate(h.now, r)
	if code != effects.OK && code != effects.Mismatch {
		m.refuse(h, code, about(w, "operations", code))
	}
	m.tells(h, code, x)
}

// syncBegins answers whether a worker may tell all that a location has.
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

// syncBatch takes a part of it.
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

// syncEnds takes its end. That it was not of as many chunks as the worker says is no reason to refuse what came.
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

// missingMost are as many batches as a worker is told that it has to send again.
const missingMost = 256

// syncStatus answers how far a sync is. Of one that nobody knows it says that it need not be waited for.
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

// bits are hashes as the directory takes them: of a fleet whose hashes have a sign, as well as of one whose have none.
func (m *Machine) bits(keys []protocol.ChunkHash) []uint64 {
	m.read.hashes = m.read.hashes[:0]
	for _, k := range keys {
		m.read.hashes = append(m.read.hashes, k.Bits)
	}
	return m.read.hashes
}
