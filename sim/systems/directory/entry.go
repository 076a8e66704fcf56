package directory

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
)

// An entry is what a directory was told about one worker since the worker registered.
type entry struct {
	id                               workerID
	incarnation, previousIncarnation protocol.UUID
	owner                            effects.Principal
	url                              string
	address                          string       // as returned by addressOf
	heardAt                          effects.Time // time of the last message, as time that the directory was awake
	possible                         []uint64     // chunks that the directory may state
	required                         *chunkReplay // chunks that the directory must state; nil if an operation is missing
	sync                             *syncState
	sendsHeartbeats                  bool
	appliesOps                       bool   // the directory applies the worker's operations
	sequenceKnown                    bool   // the number of the next operation is known
	nextSequence                     uint64 // the number of the next operation
	gaps                             []gap
	reportedAt                       map[uint64]effects.Time // time of the last report, by chunk
	syncTimeout, fadeTime            effects.Duration        // of the directory
}

// A gap is a place in the reports where operations are missing.
type gap struct {
	at     effects.Time
	halfAt effects.Time // first step of the directory after a fade time; 0 if there was none yet
}

// chunkReplay holds the chunks that result from a sequence of operations without a gap.
type chunkReplay struct {
	chunks       []uint64
	nextSequence uint64 // the number of the next operation
}

// syncState is the state of a full sync in progress.
type syncState struct {
	id          string
	beganAt     effects.Time
	progressAt  effects.Time
	batchSeen   []bool
	fullBatches int // batches with chunks
	endReceived bool
	replay      *chunkReplay // nil if an operation or a batch is missing
	possible    []uint64     // chunks that the directory may state as soon as the sync is complete, whatever has faded meanwhile
}

// applyReport applies a report of operations. A report with more operations than the limit is refused, so that all of
// them are missing.
func (t *entry) applyReport(now effects.Time, ops []protocol.KVOperation, limit int) {
	if len(ops) <= limit {
		t.applyOperations(now, ops)
		return
	}
	t.required = nil
	t.gaps = append(t.gaps, gap{at: now})
	if t.sync != nil {
		t.sync.replay = nil
	}
}

// applyOperations applies a report of operations.
func (t *entry) applyOperations(now effects.Time, ops []protocol.KVOperation) {
	for i := range ops {
		op := &ops[i]
		t.appliesOps = t.appliesOps || op.Seq == 0
		t.checkSequence(now, op)
		switch {
		case op.Type == protocol.OpAdmit:
			t.possible = addChunk(t.possible, op.Key.Bits)
		case t.appliesOps:
			t.possible = removeChunk(t.possible, op.Key.Bits)
		}
		t.required = t.required.applyOperation(op)
		if t.sync == nil {
			continue
		}
		t.sync.replay = t.sync.replay.applyOperation(op)
		switch {
		case op.Type == protocol.OpAdmit:
			t.sync.possible = addChunk(t.sync.possible, op.Key.Bits)
		case t.appliesOps:
			t.sync.possible = removeChunk(t.sync.possible, op.Key.Bits)
		}
	}
}

// applyUnnumbered applies an operation that has no sequence number. Such a report about a chunk may come after a gap of
// numbered operations, and then does not fade with what was reported before the gap.
func (t *entry) applyUnnumbered(now effects.Time, chunk uint64, evict bool) {
	t.recordReport(now, chunk)
	change := addChunk
	if evict {
		change = removeChunk
	}
	t.possible = change(t.possible, chunk)
	if t.required != nil {
		t.required.chunks = change(t.required.chunks, chunk)
	}
	if t.sync == nil {
		return
	}
	t.sync.possible = change(t.sync.possible, chunk)
	if t.sync.replay != nil {
		t.sync.replay.chunks = change(t.sync.replay.chunks, chunk)
	}
}

// applyOperation applies one more operation. The result is nil if an earlier operation is missing.
func (a *chunkReplay) applyOperation(op *protocol.KVOperation) *chunkReplay {
	if a == nil || op.Seq != a.nextSequence {
		return nil
	}
	if a.nextSequence++; op.Type == protocol.OpEvict {
		a.chunks = removeChunk(a.chunks, op.Key.Bits)
	} else {
		a.chunks = addChunk(a.chunks, op.Key.Bits)
	}
	return a
}

// checkSequence checks whether an operation has the expected sequence number, and records a gap if not. Number 0 is
// always accepted, because the worker may have started to count again; the directory applies no operation before number
// 0.
func (t *entry) checkSequence(now effects.Time, op *protocol.KVOperation) {
	if !t.appliesOps {
		return
	}
	if t.sequenceKnown && op.Seq != t.nextSequence && op.Seq != 0 {
		t.gaps = append(t.gaps, gap{at: now})
	}
	t.sequenceKnown, t.nextSequence = true, op.Seq+1
	t.recordReport(now, op.Key.Bits)
}

// recordReport records the time of a report about a chunk.
func (t *entry) recordReport(now effects.Time, chunk uint64) {
	if t.reportedAt == nil {
		t.reportedAt = map[uint64]effects.Time{}
	}
	t.reportedAt[chunk] = now
}

// fadeReports drops chunks that were last reported before a gap. The directory may keep such chunks for two fade times:
// if the gap falls into an earlier fade, the directory begins another fade when the earlier fade is over. The second
// fade time begins with the directory's first step after the first one, which is late if the directory was frozen.
func (t *entry) fadeReports(now effects.Time) {
	for i := range t.gaps {
		if g := &t.gaps[i]; g.halfAt == 0 && now.Sub(g.at) >= t.fadeTime {
			g.halfAt = now
		}
	}
	for len(t.gaps) > 0 && t.gaps[0].halfAt != 0 && now.Sub(t.gaps[0].halfAt) >= t.fadeTime {
		t.possible = slices.DeleteFunc(t.possible, func(chunk uint64) bool { return t.reportedAt[chunk] < t.gaps[0].at })
		t.gaps = t.gaps[1:]
	}
}

func (t *entry) isSyncing(id []byte) bool { return t.sync != nil && t.sync.id == string(id) }

// applyBatch applies a batch of a full sync.
func (t *entry) applyBatch(now effects.Time, m *protocol.FullSyncBatchMsg) {
	for _, k := range m.Keys {
		t.possible = addChunk(t.possible, k.Bits)
		t.recordReport(now, k.Bits)
	}
	if !t.isSyncing(m.SyncID) || int(m.BatchID) >= len(t.sync.batchSeen) || t.sync.batchSeen[m.BatchID] {
		return
	}
	if t.sync.batchSeen[m.BatchID] = true; len(m.Keys) > 0 {
		t.sync.fullBatches++
	}
	t.sync.recordProgress(now, t.syncTimeout)
	for _, k := range m.Keys {
		t.sync.possible = addChunk(t.sync.possible, k.Bits)
		if a := t.sync.replay; a != nil {
			a.chunks = addChunk(a.chunks, k.Bits)
		}
	}
	t.completeSync()
}

// batchesPerTimeout is the number of batches with chunks that a sync must deliver per sync timeout, once the first
// timeout has passed. The directory may give up a slower sync although batches still arrive; otherwise the sync could
// occupy a slot for ever.
const batchesPerTimeout = 64

// recordProgress records that a part of a sync has arrived, so that the sync timeout starts again, unless the sync is
// too slow. The directory may then give up the sync, and need not state its chunks. A sync that is fast enough must not
// be given up.
func (s *syncState) recordProgress(now effects.Time, timeout effects.Duration) {
	if now.Sub(s.beganAt) <= timeout+effects.Duration(s.fullBatches)*(timeout/batchesPerTimeout) {
		s.progressAt = now
	}
}

// completeSync finishes a sync that is complete. Chunks of the sync may be stated although an operation was lost after
// their batch, so that they have faded: what the sync fills replaces all earlier records. Example: a worker evicts a
// chunk that a batch has named, and the report is lost; the last batch arrives a few fade times later.
func (t *entry) completeSync() {
	s := t.sync
	if !s.endReceived || slices.Contains(s.batchSeen, false) {
		return
	}
	for _, chunk := range s.possible {
		t.possible = addChunk(t.possible, chunk)
	}
	t.required, t.sync, t.gaps = s.replay, nil, nil
}
