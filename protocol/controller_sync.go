package protocol

// A FullSyncStartMsg begins to tell a controller everything that a worker has, on the reply socket. What follows of it,
// and operations that happen meanwhile, come on the pull socket.
type FullSyncStartMsg struct {
	Worker
	Location    []byte // the backend that has all of it
	SyncID      []byte
	TotalKeys   uint64
	BatchCount  uint32
	Incarnation UUID // kvf_inc: the worker's; zero is unsaid
	// Next is the number of the first operation of which the sync does not tell, if Numbered: kvf_next, one more than
	// that, absent where it is unsaid.
	Next     uint64
	Numbered bool
}

// A FullSyncStartRetMsg answers it.
type FullSyncStartRetMsg struct {
	SyncID   []byte
	Accepted bool
	ErrorMsg []byte // why not, for people; may be empty
}

// A FullSyncBatchMsg is a part of it. It is not answered.
type FullSyncBatchMsg struct {
	Worker
	Location    []byte
	SyncID      []byte
	BatchID     uint32 // from 0
	Keys        []ChunkHash
	Incarnation UUID // kvf_inc
}

// A FullSyncEndMsg ends it. It is not answered.
type FullSyncEndMsg struct {
	Worker
	Location        []byte
	SyncID          []byte
	ActualTotalKeys uint64
	Incarnation     UUID // kvf_inc
}

// Fields of FullSyncStartMsg, FullSyncBatchMsg and FullSyncEndMsg. What is between syncID and the incarnation differs.
const (
	_          = iota // the tag
	syncWorker        // the first field of Worker
	_
	syncLocation
	syncID
	syncOwn
	syncOwn2
	syncIncarnation
	syncStartNext

	syncEndIncarnation = syncOwn2 // It has one field less.
)

// Fields of FullSyncStartRetMsg.
const (
	_ = iota // the tag
	syncRetID
	syncRetAccepted
	syncRetError
)

var (
	syncStartSchema = schema{
		name:   "FullSyncStartMsg",
		tagged: true,
		names: []string{
			tagField, "instance_id", "worker_id", "location", "sync_id", "total_keys", "batch_count", "kvf_inc", "kvf_next",
		},
		required: 1<<syncIncarnation - 1<<syncWorker,
	}
	syncBatchSchema = schema{
		name:     "FullSyncBatchMsg",
		tagged:   true,
		names:    []string{tagField, "instance_id", "worker_id", "location", "sync_id", "batch_id", "keys", "kvf_inc"},
		required: 1<<syncIncarnation - 1<<syncWorker,
	}
	syncEndSchema = schema{
		name:     "FullSyncEndMsg",
		tagged:   true,
		names:    []string{tagField, "instance_id", "worker_id", "location", "sync_id", "actual_total_keys", "kvf_inc"},
		required: 1<<syncEndIncarnation - 1<<syncWorker,
	}
	syncStartRetSchema = schema{
		name:     "FullSyncStartRetMsg",
		tagged:   true,
		names:    []string{tagField, "sync_id", "accepted", "error_msg"},
		required: 1<<syncRetID | 1<<syncRetAccepted,
	}
)

// Append appends the message to b.
func (m *FullSyncStartMsg) Append(b []byte) []byte {
	next := uint64(0)
	if m.Numbered {
		next = m.Next + 1
	}
	b = m.appendWorker(appendTag(b, TagFullSyncStartMsg, 6+ones(m.Incarnation != UUID{}, next != 0)))
	b = appendStr(appendStr(b, "location"), m.Location)
	b = appendStr(appendStr(b, "sync_id"), m.SyncID)
	b = appendUint(appendStr(b, "total_keys"), m.TotalKeys)
	b = appendUint(appendStr(b, "batch_count"), uint64(m.BatchCount))
	return appendNonZero(appendNonZeroUUID(b, "kvf_inc", m.Incarnation), "kvf_next", next)
}

// Decode fills m from b, which may be JSON; texts are views. The error is a *DecodeError.
func (m *FullSyncStartMsg) Decode(b []byte, lim *Limits) error {
	*m = FullSyncStartMsg{}
	r, from := openEither(b, lim)
	r.expectTag(TagFullSyncStartMsg)
	w := fields{r: &r, schema: &syncStartSchema, depth: 2}
	for w.open(); w.next(); {
		switch w.at {
		case syncLocation:
			m.Location = r.text()
		case syncID:
			m.SyncID = r.text()
		case syncOwn:
			m.TotalKeys = r.uint64()
		case syncOwn2:
			m.BatchCount = r.uint32()
		case syncIncarnation:
			m.Incarnation = r.uuid()
		case syncStartNext:
			next := r.uint64()
			m.Next, m.Numbered = max(next, 1)-1, next > 0
		default:
			m.decodeWorker(&r, w.at-syncWorker)
		}
	}
	w.close()
	r.end()
	return from.result(&r)
}

// Append appends the message to b.
func (m *FullSyncBatchMsg) Append(b []byte) []byte {
	b = m.appendWorker(appendTag(b, TagFullSyncBatchMsg, 6+ones(m.Incarnation != UUID{})))
	b = appendStr(appendStr(b, "location"), m.Location)
	b = appendStr(appendStr(b, "sync_id"), m.SyncID)
	b = appendUint(appendStr(b, "batch_id"), uint64(m.BatchID))
	return appendNonZeroUUID(appendHashes(b, "keys", m.Keys), "kvf_inc", m.Incarnation)
}

// Decode fills m from b, which may be JSON; texts are views. The error is a *DecodeError.
func (m *FullSyncBatchMsg) Decode(b []byte, lim *Limits) error {
	*m = FullSyncBatchMsg{Keys: m.Keys[:0]}
	r, from := openEither(b, lim)
	r.expectTag(TagFullSyncBatchMsg)
	w := fields{r: &r, schema: &syncBatchSchema, depth: 2}
	for w.open(); w.next(); {
		switch w.at {
		case syncLocation:
			m.Location = r.text()
		case syncID:
			m.SyncID = r.text()
		case syncOwn:
			m.BatchID = r.uint32()
		case syncOwn2:
			m.Keys = r.hashes(m.Keys)
		case syncIncarnation:
			m.Incarnation = r.uuid()
		default:
			m.decodeWorker(&r, w.at-syncWorker)
		}
	}
	w.close()
	r.end()
	return from.result(&r)
}

// Append appends the message to b.
func (m *FullSyncEndMsg) Append(b []byte) []byte {
	b = m.appendWorker(appendTag(b, TagFullSyncEndMsg, 5+ones(m.Incarnation != UUID{})))
	b = appendStr(appendStr(b, "location"), m.Location)
	b = appendStr(appendStr(b, "sync_id"), m.SyncID)
	b = appendUint(appendStr(b, "actual_total_keys"), m.ActualTotalKeys)
	return appendNonZeroUUID(b, "kvf_inc", m.Incarnation)
}

// Decode fills m from b, which may be JSON; texts are views. The error is a *DecodeError.
func (m *FullSyncEndMsg) Decode(b []byte, lim *Limits) error {
	*m = FullSyncEndMsg{}
	r, from := openEither(b, lim)
	r.expectTag(TagFullSyncEndMsg)
	w := fields{r: &r, schema: &syncEndSchema, depth: 2}
	for w.open(); w.next(); {
		switch w.at {
		case syncLocation:
			m.Location = r.text()
		case syncID:
			m.SyncID = r.text()
		case syncOwn:
			m.ActualTotalKeys = r.uint64()
		case syncEndIncarnation:
			m.Incarnation = r.uuid()
		default:
			m.decodeWorker(&r, w.at-syncWorker)
		}
	}
	w.close()
	r.end()
	return from.result(&r)
}

// Append appends the message to b.
func (m *FullSyncStartRetMsg) Append(b []byte) []byte {
	b = appendTag(b, TagFullSyncStartRetMsg, 3)
	b = appendStr(appendStr(b, "sync_id"), m.SyncID)
	b = appendBool(appendStr(b, "accepted"), m.Accepted)
	return appendTextOrNil(appendStr(b, "error_msg"), m.ErrorMsg)
}

// Decode fills m from b, which may be JSON; texts are views. The error is a *DecodeError.
func (m *FullSyncStartRetMsg) Decode(b []byte, lim *Limits) error {
	*m = FullSyncStartRetMsg{}
	r, from := openEither(b, lim)
	r.expectTag(TagFullSyncStartRetMsg)
	w := fields{r: &r, schema: &syncStartRetSchema, depth: 2}
	for w.open(); w.next(); {
		switch w.at {
		case syncRetID:
			m.SyncID = r.text()
		case syncRetAccepted:
			m.Accepted = r.boolean()
		case syncRetError:
			m.ErrorMsg = r.textOrNil()
		}
	}
	w.close()
	r.end()
	return from.result(&r)
}
