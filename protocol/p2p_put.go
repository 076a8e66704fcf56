package protocol

// An AscendBatchedLookupAndPutMsg offers a peer chunks that it did not ask for. LMCache-Ascend declares it and serves
// it nowhere: whoever gets one answers with a P2PErrorMsg of P2PServerError.
type AscendBatchedLookupAndPutMsg struct {
	BatchedLookupAndPutMsg
	BufferUUIDs []UUID // as long as MemIndexes or empty, which Decode checks
}

// A BatchedLookupAndPutMsg is the same of a peer that is not LMCache-Ascend.
type BatchedLookupAndPutMsg struct {
	SenderID []byte // host:port of the offerer's init socket
	Keys     [][]byte
	// Offsets and MemIndexes have one entry per key, which Decode checks: how many tokens the chunk has, and the page at
	// the offerer. Range unchecked.
	Offsets    []int64
	MemIndexes []int64
}

// A BatchedLookupAndPutRetMsg answers it.
type BatchedLookupAndPutRetMsg struct {
	ReadChunks uint32
}

// Fields of AscendBatchedLookupAndPutMsg, of which upstream's has all but the last.
const (
	_ = iota // the tag
	putSenderID
	putKeys
	putOffsets
	putIndexes
	putUUIDs
)

// Fields of BatchedLookupAndPutRetMsg.
const (
	_ = iota // the tag
	putReadChunks
)

var (
	p2pPutSchema = schema{
		name:     "AscendBatchedLookupAndPutMsg",
		tagged:   true,
		names:    []string{tagField, "sender_id", "keys", "offsets", "mem_indexes", "buffer_uuids"},
		required: 1<<putSenderID | 1<<putKeys | 1<<putOffsets | 1<<putIndexes,
	}
	upstreamPutSchema = schema{
		name:     "BatchedLookupAndPutMsg",
		tagged:   true,
		names:    p2pPutSchema.names[:putUUIDs],
		required: p2pPutSchema.required,
	}
	putReplySchema = schema{
		name:     "BatchedLookupAndPutRetMsg",
		tagged:   true,
		names:    []string{tagField, "num_read_chunks"},
		required: 1 << putReadChunks,
	}
)

// Append appends the message to b.
func (m *AscendBatchedLookupAndPutMsg) Append(b []byte) []byte {
	b = m.appendFields(appendTag(b, TagAscendBatchedLookupAndPutMsg, putUUIDs))
	return appendUUIDs(b, "buffer_uuids", m.BufferUUIDs)
}

// Decode fills m from b; see the package comment for what it keeps of both. The error is a *DecodeError.
func (m *AscendBatchedLookupAndPutMsg) Decode(b []byte, lim *Limits) error {
	*m = AscendBatchedLookupAndPutMsg{BatchedLookupAndPutMsg: m.emptied(), BufferUUIDs: m.BufferUUIDs[:0]}
	r := open(b, lim)
	r.expectTag(TagAscendBatchedLookupAndPutMsg)
	m.decode(&r, &p2pPutSchema, &m.BufferUUIDs)
	return r.result()
}

// Append appends the message to b.
func (m *BatchedLookupAndPutMsg) Append(b []byte) []byte {
	return m.appendFields(appendTag(b, TagBatchedLookupAndPutMsg, putUUIDs-1))
}

// Decode fills m from b; see the package comment for what it keeps of both. The error is a *DecodeError.
func (m *BatchedLookupAndPutMsg) Decode(b []byte, lim *Limits) error {
	*m = m.emptied()
	r := open(b, lim)
	r.expectTag(TagBatchedLookupAndPutMsg)
	m.decode(&r, &upstreamPutSchema, nil)
	return r.result()
}

// emptied returns no message, and keeps the slices for the next.
func (m *BatchedLookupAndPutMsg) emptied() BatchedLookupAndPutMsg {
	return BatchedLookupAndPutMsg{Keys: m.Keys[:0], Offsets: m.Offsets[:0], MemIndexes: m.MemIndexes[:0]}
}

func (m *BatchedLookupAndPutMsg) appendFields(b []byte) []byte {
	b = appendStr(appendStr(b, "sender_id"), m.SenderID)
	b = appendStrs(b, "keys", m.Keys)
	b = appendInts(b, "offsets", m.Offsets)
	return appendInts(b, "mem_indexes", m.MemIndexes)
}

// decode reads the fields of either form; only a schema that declares uuids puts any there.
func (m *BatchedLookupAndPutMsg) decode(r *reader, s *schema, uuids *[]UUID) {
	w := fields{r: r, schema: s, depth: 2}
	offsetsAt, indexesAt, uuidsAt := 0, 0, 0
	for w.open(); w.next(); {
		switch w.at {
		case putSenderID:
			m.SenderID = r.text()
		case putKeys:
			m.Keys = r.keys(m.Keys)
		case putOffsets:
			offsetsAt = r.off
			m.Offsets = r.int64s(m.Offsets)
		case putIndexes:
			indexesAt = r.off
			m.MemIndexes = r.int64s(m.MemIndexes)
		case putUUIDs:
			uuidsAt = r.off
			*uuids = r.uuids(*uuids)
		}
	}
	w.close()
	r.end()
	r.parallel("offsets", offsetsAt, len(m.Offsets), "keys", len(m.Keys))
	r.parallel("mem_indexes", indexesAt, len(m.MemIndexes), "keys", len(m.Keys))
	if uuids != nil && len(*uuids) > 0 {
		r.parallel("buffer_uuids", uuidsAt, len(*uuids), "mem_indexes", len(m.MemIndexes))
	}
}

// Append appends the message to b.
func (m *BatchedLookupAndPutRetMsg) Append(b []byte) []byte {
	b = appendTag(b, TagBatchedLookupAndPutRetMsg, 1)
	return appendUint(appendStr(b, "num_read_chunks"), uint64(m.ReadChunks))
}

// Decode fills m from b and keeps nothing of it. The error is a *DecodeError.
func (m *BatchedLookupAndPutRetMsg) Decode(b []byte, lim *Limits) error {
	*m = BatchedLookupAndPutRetMsg{}
	r := open(b, lim)
	r.expectTag(TagBatchedLookupAndPutRetMsg)
	w := fields{r: &r, schema: &putReplySchema, depth: 2}
	for w.open(); w.next(); {
		if w.at == putReadChunks {
			m.ReadChunks = r.uint32()
		}
	}
	w.close()
	r.end()
	return r.result()
}
