package protocol

// An AscendBatchedLookupAndGetMsg asks a peer for chunks: requester to owner, on the owner's lookup socket. The owner
// serves the longest prefix of the keys that it has.
//
// In push the requester says where the owner shall store each chunk, and the references are its own. In pull the owner
// answers where each chunk may be read; what the requester sends as references then means nothing.
type AscendBatchedLookupAndGetMsg struct {
	LookupID   []byte // the requester's name of the lookup; another requester may use the same
	ReceiverID []byte // host:port of the requester's init socket, by which the owner knows it since the handshake
	Keys       [][]byte
	// MemIndexes and BufferUUIDs run in parallel, which Decode checks. In push they have one entry per key. Range
	// unchecked.
	MemIndexes  []int64
	BufferUUIDs []UUID
	PullMode    bool

	HasExt bool
	Ext    P2PGetExt
}

// P2PGetExt is what kvferry adds to the question. In push the requester grants, and speaks first: its stamps say how
// long the owner may store.
type P2PGetExt struct {
	Version     uint32   // kvf_v: of these fields; its presence is HasExt
	Incarnation UUID     // kvf_inc: the requester's
	To          UUID     // kvf_to: the incarnation that the requester believes it talks to
	Operation   uint64   // kvf_op: the same for each attempt at one lookup
	Attempt     uint32   // kvf_try
	PatienceNS  uint64   // kvf_patience_ns: how long after receipt an answer is of use, nanoseconds
	Grant       uint64   // kvf_grant: push: the one write grant over all pages; 0 is none
	Generations []uint64 // kvf_gens: push: the granted generation of each page, as long as MemIndexes or empty
	GrantedNS   int64    // kvf_granted_ns: push: when the grant began, by the requester's clock; not negative
	LeaseNS     uint64   // kvf_lease_ns: push: how long it stands from there, nanoseconds
	Stamps      Stamps   // of the requester
}

// Fields of AscendBatchedLookupAndGetMsg.
const (
	_ = iota // the tag
	getLookupID
	getReceiverID
	getKeys
	getIndexes
	getUUIDs
	getPull
	getVersion
	getIncarnation
	getTo
	getOperation
	getAttempt
	getPatience
	getGrant
	getGenerations
	getGranted
	getLease
	getClock // the first field of Stamps
	_
)

var p2pGetSchema = schema{
	name:   "AscendBatchedLookupAndGetMsg",
	tagged: true,
	names: []string{
		tagField, "lookup_id", "receiver_id", "keys", "mem_indexes", "buffer_uuids", "pull_mode", "kvf_v", "kvf_inc",
		"kvf_to", "kvf_op", "kvf_try", "kvf_patience_ns", "kvf_grant", "kvf_gens", "kvf_granted_ns", "kvf_lease_ns",
		"kvf_clock_ns", "kvf_echo_ns",
	},
	required: 1<<getLookupID | 1<<getReceiverID | 1<<getKeys | 1<<getIndexes,
}

// Append appends the message to b.
func (m *AscendBatchedLookupAndGetMsg) Append(b []byte) []byte {
	n := 6
	if m.HasExt {
		n += m.Ext.count()
	}
	b = appendTag(b, TagAscendBatchedLookupAndGetMsg, n)
	b = appendStr(appendStr(b, "lookup_id"), m.LookupID)
	b = appendStr(appendStr(b, "receiver_id"), m.ReceiverID)
	b = appendStrs(b, "keys", m.Keys)
	b = appendInts(b, "mem_indexes", m.MemIndexes)
	b = appendUUIDs(b, "buffer_uuids", m.BufferUUIDs)
	b = appendBool(appendStr(b, "pull_mode"), m.PullMode)
	if m.HasExt {
		b = m.Ext.append(b)
	}
	return b
}

// Decode fills m from b; see the package comment for what it keeps of both. The error is a *DecodeError.
func (m *AscendBatchedLookupAndGetMsg) Decode(b []byte, lim *Limits) error {
	*m = AscendBatchedLookupAndGetMsg{
		Keys: m.Keys[:0], MemIndexes: m.MemIndexes[:0], BufferUUIDs: m.BufferUUIDs[:0], Ext: m.Ext.emptied(),
	}
	r := open(b, lim)
	r.expectTag(TagAscendBatchedLookupAndGetMsg)
	w := fields{r: &r, schema: &p2pGetSchema, depth: 2}
	indexesAt, uuidsAt, generationsAt := 0, 0, 0
	for w.open(); w.next(); {
		switch w.at {
		case getLookupID:
			m.LookupID = r.text()
		case getReceiverID:
			m.ReceiverID = r.text()
		case getKeys:
			m.Keys = r.keys(m.Keys)
		case getIndexes:
			indexesAt = r.off
			m.MemIndexes = r.int64s(m.MemIndexes)
		case getUUIDs:
			uuidsAt = r.off
			m.BufferUUIDs = r.uuids(m.BufferUUIDs)
		case getPull:
			m.PullMode = r.boolean()
		case getGenerations:
			generationsAt = r.off
			m.Ext.Generations = r.uint64s(m.Ext.Generations)
		default:
			m.Ext.decode(&r, w.at)
		}
	}
	w.close()
	r.end()
	if !m.PullMode {
		r.parallel("mem_indexes", indexesAt, len(m.MemIndexes), "keys", len(m.Keys))
	}
	r.parallel("buffer_uuids", uuidsAt, len(m.BufferUUIDs), "mem_indexes", len(m.MemIndexes))
	if m.HasExt = w.has(getVersion); !m.HasExt {
		m.Ext = m.Ext.emptied()
	} else if n := len(m.Ext.Generations); n > 0 {
		r.parallel("kvf_gens", generationsAt, n, "mem_indexes", len(m.MemIndexes))
	}
	return r.result()
}

// emptied returns no extension, and keeps the slice for the next.
func (e *P2PGetExt) emptied() P2PGetExt { return P2PGetExt{Generations: e.Generations[:0]} }

func (e *P2PGetExt) decode(r *reader, field int) {
	switch field {
	case getVersion:
		e.Version = r.uint32()
	case getIncarnation:
		e.Incarnation = r.uuid()
	case getTo:
		e.To = r.uuid()
	case getOperation:
		e.Operation = r.uint64()
	case getAttempt:
		e.Attempt = r.uint32()
	case getPatience:
		e.PatienceNS = r.uint64()
	case getGrant:
		e.Grant = r.uint64()
	case getGranted:
		e.GrantedNS = r.instant()
	case getLease:
		e.LeaseNS = r.uint64()
	default:
		e.Stamps.decode(r, field-getClock)
	}
}

// count says how many fields append will write.
func (e *P2PGetExt) count() int {
	return 1 + e.Stamps.count() + ones(e.Incarnation != UUID{}, e.To != UUID{}, e.Operation != 0, e.Attempt != 0,
		e.PatienceNS != 0, e.Grant != 0, len(e.Generations) > 0, e.GrantedNS != 0, e.LeaseNS != 0)
}

func (e *P2PGetExt) append(b []byte) []byte {
	b = appendUint(appendStr(b, "kvf_v"), uint64(e.Version))
	b = appendNonZeroUUID(b, "kvf_inc", e.Incarnation)
	b = appendNonZeroUUID(b, "kvf_to", e.To)
	b = appendNonZero(b, "kvf_op", e.Operation)
	b = appendNonZero(b, "kvf_try", uint64(e.Attempt))
	b = appendNonZero(b, "kvf_patience_ns", e.PatienceNS)
	b = appendNonZero(b, "kvf_grant", e.Grant)
	b = appendNonEmpty(b, "kvf_gens", e.Generations)
	b = appendNonZero(b, "kvf_granted_ns", uint64(e.GrantedNS))
	b = appendNonZero(b, "kvf_lease_ns", e.LeaseNS)
	return e.Stamps.append(b)
}
