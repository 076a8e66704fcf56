package protocol

// A FullSyncStatusMsg asks how far a controller is with a full sync, on the reply socket.
type FullSyncStatusMsg struct {
	Worker
	SyncID []byte
}

// A FullSyncStatusRetMsg answers it.
type FullSyncStatusRetMsg struct {
	SyncID         []byte
	IsComplete     bool    // everything of this worker has come
	GlobalProgress float64 // of all workers, 0 to 1; range unchecked
	CanExitFreeze  bool    // lookups are answered again
	MissingBatches []int64 // to be sent again; range unchecked
}

// Fields of FullSyncStatusMsg.
const (
	_            = iota // the tag
	statusWorker        // the first field of Worker
	_
	statusSyncID
)

// Fields of FullSyncStatusRetMsg.
const (
	_ = iota // the tag
	statusRetID
	statusRetComplete
	statusRetProgress
	statusRetFreeze
	statusRetMissing
)

var (
	syncStatusSchema = schema{
		name:     "FullSyncStatusMsg",
		tagged:   true,
		names:    []string{tagField, "instance_id", "worker_id", "sync_id"},
		required: 3<<statusWorker | 1<<statusSyncID,
	}
	syncStatusRetSchema = schema{
		name:   "FullSyncStatusRetMsg",
		tagged: true,
		names: []string{
			tagField, "sync_id", "is_complete", "global_progress", "can_exit_freeze", "missing_batches",
		},
		required: 1<<statusRetMissing - 1<<statusRetID,
	}
)

// Append appends the message to b.
func (m *FullSyncStatusMsg) Append(b []byte) []byte {
	b = m.appendWorker(appendTag(b, TagFullSyncStatusMsg, 3))
	return appendStr(appendStr(b, "sync_id"), m.SyncID)
}

// Decode fills m from b, which may be JSON; texts are views. The error is a *DecodeError.
func (m *FullSyncStatusMsg) Decode(b []byte, lim *Limits) error {
	*m = FullSyncStatusMsg{}
	r, from := openEither(b, lim)
	r.expectTag(TagFullSyncStatusMsg)
	w := fields{r: &r, schema: &syncStatusSchema, depth: 2}
	for w.open(); w.next(); {
		if w.at == statusSyncID {
			m.SyncID = r.text()
		} else {
			m.decodeWorker(&r, w.at-statusWorker)
		}
	}
	w.close()
	r.end()
	return from.result(&r)
}

// SetProgress says how many of 10,000 parts have come: machines have no fractions.
func (m *FullSyncStatusRetMsg) SetProgress(parts int) { m.GlobalProgress = float64(parts) / 10_000 }

// Append appends the message to b.
func (m *FullSyncStatusRetMsg) Append(b []byte) []byte {
	b = appendTag(b, TagFullSyncStatusRetMsg, 5)
	b = appendStr(appendStr(b, "sync_id"), m.SyncID)
	b = appendBool(appendStr(b, "is_complete"), m.IsComplete)
	b = appendFloat(appendStr(b, "global_progress"), m.GlobalProgress)
	b = appendBool(appendStr(b, "can_exit_freeze"), m.CanExitFreeze)
	return appendInts(b, "missing_batches", m.MissingBatches)
}

// Decode fills m from b, which may be JSON; texts are views. The error is a *DecodeError.
func (m *FullSyncStatusRetMsg) Decode(b []byte, lim *Limits) error {
	*m = FullSyncStatusRetMsg{MissingBatches: m.MissingBatches[:0]}
	r, from := openEither(b, lim)
	r.expectTag(TagFullSyncStatusRetMsg)
	w := fields{r: &r, schema: &syncStatusRetSchema, depth: 2}
	for w.open(); w.next(); {
		switch w.at {
		case statusRetID:
			m.SyncID = r.text()
		case statusRetComplete:
			m.IsComplete = r.boolean()
		case statusRetProgress:
			m.GlobalProgress = r.float()
		case statusRetFreeze:
			m.CanExitFreeze = r.boolean()
		case statusRetMissing:
			m.MissingBatches = r.int64s(m.MissingBatches)
		}
	}
	w.close()
	r.end()
	return from.result(&r)
}
