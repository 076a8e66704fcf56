package protocol

// A BatchedLookupAndGetMsg is how an LMCache peer that is not LMCache-Ascend asks for chunks. It is always a push: the
// owner stores into the requester's first buffer.
type BatchedLookupAndGetMsg struct {
	LookupID   []byte
	ReceiverID []byte // host:port of the requester's init socket
	Keys       [][]byte
	MemIndexes []int64 // pages, one per key, which Decode checks; range unchecked
}

// A BatchedLookupAndGetRetMsg answers it when the chunks are stored.
type BatchedLookupAndGetRetMsg struct {
	HitChunks uint32 // how many of the question's keys, from the first
}

// upstreamGetFields is how many fields of AscendBatchedLookupAndGetMsg upstream's question has, which are the first.
const upstreamGetFields = getUUIDs

var (
	upstreamGetSchema = schema{
		name:     "BatchedLookupAndGetMsg",
		tagged:   true,
		names:    p2pGetSchema.names[:upstreamGetFields],
		required: p2pGetSchema.required,
	}
	upstreamGetReplySchema = schema{
		name:     "BatchedLookupAndGetRetMsg",
		tagged:   true,
		names:    p2pGetReplySchema.names[:gotUUIDs],
		required: p2pGetReplySchema.required,
	}
)

// Append appends the message to b.
func (m *BatchedLookupAndGetMsg) Append(b []byte) []byte {
	b = appendTag(b, TagBatchedLookupAndGetMsg, upstreamGetFields-1)
	b = appendStr(appendStr(b, "lookup_id"), m.LookupID)
	b = appendStr(appendStr(b, "receiver_id"), m.ReceiverID)
	b = appendStrs(b, "keys", m.Keys)
	return appendInts(b, "mem_indexes", m.MemIndexes)
}

// Decode fills m from b; see the package comment for what it keeps of both. The error is a *DecodeError.
func (m *BatchedLookupAndGetMsg) Decode(b []byte, lim *Limits) error {
	*m = BatchedLookupAndGetMsg{Keys: m.Keys[:0], MemIndexes: m.MemIndexes[:0]}
	r := open(b, lim)
	r.expectTag(TagBatchedLookupAndGetMsg)
	w := fields{r: &r, schema: &upstreamGetSchema, depth: 2}
	indexesAt := 0
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
		}
	}
	w.close()
	r.end()
	r.parallel("mem_indexes", indexesAt, len(m.MemIndexes), "keys", len(m.Keys))
	return r.result()
}

// Append appends the message to b.
func (m *BatchedLookupAndGetRetMsg) Append(b []byte) []byte {
	b = appendTag(b, TagBatchedLookupAndGetRetMsg, 1)
	return appendUint(appendStr(b, "num_hit_chunks"), uint64(m.HitChunks))
}

// Decode fills m from b and keeps nothing of it. The error is a *DecodeError.
func (m *BatchedLookupAndGetRetMsg) Decode(b []byte, lim *Limits) error {
	*m = BatchedLookupAndGetRetMsg{}
	r := open(b, lim)
	r.expectTag(TagBatchedLookupAndGetRetMsg)
	w := fields{r: &r, schema: &upstreamGetReplySchema, depth: 2}
	for w.open(); w.next(); {
		if w.at == gotHits {
			m.HitChunks = r.uint32()
		}
	}
	w.close()
	r.end()
	return r.result()
}
