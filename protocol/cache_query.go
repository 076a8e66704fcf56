package protocol

// A CacheQueryRequest asks which of these chunks the asker may read back: prefiller to decoder, on the decoder's query
// port, answered by one CacheQueryResponse. What it names is not consumed by the question.
type CacheQueryRequest struct {
	Keys [][]byte // as text, in the order of the request's tokens

	HasExt bool
	Ext    CacheQueryExt
}

// CacheQueryExt is what kvferry adds to the question. Without keys and with grants that are finished with the message
// is a request of its own; it goes only to peers that announced CapRecall.
type CacheQueryExt struct {
	Version     uint32   // kvf_v: of these fields; its presence is HasExt
	Incarnation UUID     // kvf_inc: the asker's
	To          UUID     // kvf_to: the incarnation that the asker believes it talks to
	Operation   uint64   // kvf_op: the same for each attempt at one question
	Attempt     uint32   // kvf_try
	PatienceNS  uint64   // kvf_patience_ns: how long after receipt an answer is of use, nanoseconds
	Request     []byte   // kvf_req: the proxy's id of the request, may be empty
	Done        []uint64 // kvf_done: grants that are finished with; nothing of the asker's touches their pages any more
}

// A CacheQueryResponse answers it. Between kvferry nodes the chunks are the longest prefix of the question's that the
// decoder has, and its grant keeps their pages as they are; a plain decoder promises nothing, and its pages may be
// others' by the time that the answer arrives.
type CacheQueryResponse struct {
	// CachedKeys and CachedIndexes have one entry per chunk, which Decode checks: the key as the question has it, and
	// the page in the buffer that the decoder registered first, range unchecked.
	CachedKeys    [][]byte
	CachedIndexes []int64

	HasExt bool
	Ext    CacheReplyExt
}

// CacheReplyExt is what kvferry adds to the answer.
type CacheReplyExt struct {
	Version     uint32   // kvf_v: of these fields; its presence is HasExt
	Incarnation UUID     // kvf_inc: the decoder's
	Grant       uint64   // kvf_grant: the one read grant over all pages of the answer; 0 is none
	Generations []uint64 // kvf_gens: the granted generation of each page, as long as CachedIndexes or empty
	Lengths     []uint64 // kvf_lengths: the bytes of each chunk, as long as CachedIndexes or empty: each fills its page
	// LeaseNS is how long the grant stands, nanoseconds. It counts for the asker from when it sent the question that
	// this answers, and for the decoder from when it answered, which is later.
	LeaseNS uint64   // kvf_lease_ns
	Code    uint32   // kvf_code: why nothing can be read; 0 if the list is what there is
	RetryNS uint64   // kvf_retry_ns: when another question makes sense, nanoseconds from now; 0 is unknown
	Done    []uint64 // kvf_done: grants that have ended by the question's Done, now or before
	Reason  []byte   // kvf_reason: Code for people
}

// Fields of CacheQueryRequest.
const (
	_ = iota // the tag
	queryKeys
	queryVersion
	queryIncarnation
	queryTo
	queryOperation
	queryAttempt
	queryPatience
	queryRequest
	queryDone
)

// Fields of CacheQueryResponse.
const (
	_ = iota // the tag
	cachedKeys
	cachedIndexes
	cachedVersion
	cachedIncarnation
	cachedGrant
	cachedGenerations
	cachedLengths
	cachedLease
	cachedCode
	cachedRetry
	cachedDone
	cachedReason
)

var (
	cacheQuerySchema = schema{
		name:   "CacheQueryRequest",
		tagged: true,
		names: []string{
			tagField, "keys", "kvf_v", "kvf_inc", "kvf_to", "kvf_op", "kvf_try", "kvf_patience_ns", "kvf_req", "kvf_done",
		},
		required: 1 << queryKeys,
	}
	cacheReplySchema = schema{
		name:   "CacheQueryResponse",
		tagged: true,
		names: []string{
			tagField, "cached_keys", "cached_indexes", "kvf_v", "kvf_inc", "kvf_grant", "kvf_gens", "kvf_lengths",
			"kvf_lease_ns", "kvf_code", "kvf_retry_ns", "kvf_done", "kvf_reason",
		},
		required: 1<<cachedKeys | 1<<cachedIndexes,
	}
)

// Append appends the message to b.
func (m *CacheQueryRequest) Append(b []byte) []byte {
	n := 1
	if m.HasExt {
		n += m.Ext.count()
	}
	b = appendTag(b, TagCacheQueryRequest, n)
	b = appendStrs(b, "keys", m.Keys)
	if m.HasExt {
		b = m.Ext.append(b)
	}
	return b
}

// Decode fills m from b; see the package comment for what it keeps of both. The error is a *DecodeError.
func (m *CacheQueryRequest) Decode(b []byte, lim *Limits) error {
	*m = CacheQueryRequest{Keys: m.Keys[:0], Ext: m.Ext.emptied()}
	r := open(b, lim)
	r.expectTag(TagCacheQueryRequest)
	w := fields{r: &r, schema: &cacheQuerySchema, depth: 2}
	for w.open(); w.next(); {
		if w.at == queryKeys {
			m.Keys = r.keys(m.Keys)
		} else {
			m.Ext.decode(&r, w.at)
		}
	}
	w.close()
	r.end()
	if m.HasExt = w.has(queryVersion); !m.HasExt {
		m.Ext = m.Ext.emptied()
	}
	return r.result()
}

// emptied returns no extension, and keeps the slice for the next.
func (e *CacheQueryExt) emptied() CacheQueryExt { return CacheQueryExt{Done: e.Done[:0]} }

func (e *CacheQueryExt) decode(r *reader, field int) {
	switch field {
	case queryVersion:
		e.Version = r.uint32()
	case queryIncarnation:
		e.Incarnation = r.uuid()
	case queryTo:
		e.To = r.uuid()
	case queryOperation:
		e.Operation = r.uint64()
	case queryAttempt:
		e.Attempt = r.uint32()
	case queryPatience:
		e.PatienceNS = r.uint64()
	case queryRequest:
		e.Request = r.text()
	case queryDone:
		e.Done = r.uint64s(e.Done)
	}
}

// count says how many fields append will write.
func (e *CacheQueryExt) count() int {
	return 1 + ones(e.Incarnation != UUID{}, e.To != UUID{}, e.Operation != 0, e.Attempt != 0, e.PatienceNS != 0,
		len(e.Request) > 0, len(e.Done) > 0)
}

func (e *CacheQueryExt) append(b []byte) []byte {
	b = appendUint(appendStr(b, "kvf_v"), uint64(e.Version))
	b = appendNonZeroUUID(b, "kvf_inc", e.Incarnation)
	b = appendNonZeroUUID(b, "kvf_to", e.To)
	b = appendNonZero(b, "kvf_op", e.Operation)
	b = appendNonZero(b, "kvf_try", uint64(e.Attempt))
	b = appendNonZero(b, "kvf_patience_ns", e.PatienceNS)
	b = appendNonEmptyText(b, "kvf_req", e.Request)
	return appendNonEmpty(b, "kvf_done", e.Done)
}

// Append appends the message to b.
func (m *CacheQueryResponse) Append(b []byte) []byte {
	n := 2
	if m.HasExt {
		n += m.Ext.count()
	}
	b = appendTag(b, TagCacheQueryResponse, n)
	b = appendStrs(b, "cached_keys", m.CachedKeys)
	b = appendInts(b, "cached_indexes", m.CachedIndexes)
	if m.HasExt {
		b = m.Ext.append(b)
	}
	return b
}

// Decode fills m from b; see the package comment for what it keeps of both. The error is a *DecodeError.
func (m *CacheQueryResponse) Decode(b []byte, lim *Limits) error {
	*m = CacheQueryResponse{CachedKeys: m.CachedKeys[:0], CachedIndexes: m.CachedIndexes[:0], Ext: m.Ext.emptied()}
	r := open(b, lim)
	r.expectTag(TagCacheQueryResponse)
	w := fields{r: &r, schema: &cacheReplySchema, depth: 2}
	indexesAt, generationsAt, lengthsAt := 0, 0, 0
	for w.open(); w.next(); {
		switch w.at {
		case cachedKeys:
			m.CachedKeys = r.keys(m.CachedKeys)
			continue
		case cachedIndexes:
			indexesAt = r.off
			m.CachedIndexes = r.int64s(m.CachedIndexes)
			continue
		case cachedGenerations:
			generationsAt = r.off
		case cachedLengths:
			lengthsAt = r.off
		}
		m.Ext.decode(&r, w.at)
	}
	w.close()
	r.end()
	r.parallel("cached_indexes", indexesAt, len(m.CachedIndexes), "cached_keys", len(m.CachedKeys))
	if m.HasExt = w.has(cachedVersion); !m.HasExt {
		m.Ext = m.Ext.emptied()
		return r.result()
	}
	if n := len(m.Ext.Generations); n > 0 {
		r.parallel("kvf_gens", generationsAt, n, "cached_keys", len(m.CachedKeys))
	}
	if n := len(m.Ext.Lengths); n > 0 {
		r.parallel("kvf_lengths", lengthsAt, n, "cached_keys", len(m.CachedKeys))
	}
	return r.result()
}

// emptied returns no extension, and keeps the slices for the next.
func (e *CacheReplyExt) emptied() CacheReplyExt {
	return CacheReplyExt{Generations: e.Generations[:0], Lengths: e.Lengths[:0], Done: e.Done[:0]}
}

func (e *CacheReplyExt) decode(r *reader, field int) {
	switch field {
	case cachedVersion:
		e.Version = r.uint32()
	case cachedIncarnation:
		e.Incarnation = r.uuid()
	case cachedGrant:
		e.Grant = r.uint64()
	case cachedGenerations:
		e.Generations = r.uint64s(e.Generations)
	case cachedLengths:
		e.Lengths = r.uint64s(e.Lengths)
	case cachedLease:
		e.LeaseNS = r.uint64()
	case cachedCode:
		e.Code = r.uint32()
	case cachedRetry:
		e.RetryNS = r.uint64()
	case cachedDone:
		e.Done = r.uint64s(e.Done)
	case cachedReason:
		e.Reason = r.text()
	}
}

// count says how many fields append will write.
func (e *CacheReplyExt) count() int {
	return 1 + ones(e.Incarnation != UUID{}, e.Grant != 0, len(e.Generations) > 0, len(e.Lengths) > 0, e.LeaseNS != 0,
		e.Code != 0, e.RetryNS != 0, len(e.Done) > 0, len(e.Reason) > 0)
}

func (e *CacheReplyExt) append(b []byte) []byte {
	b = appendUint(appendStr(b, "kvf_v"), uint64(e.Version))
	b = appendNonZeroUUID(b, "kvf_inc", e.Incarnation)
	b = appendNonZero(b, "kvf_grant", e.Grant)
	b = appendNonEmpty(b, "kvf_gens", e.Generations)
	b = appendNonEmpty(b, "kvf_lengths", e.Lengths)
	b = appendNonZero(b, "kvf_lease_ns", e.LeaseNS)
	b = appendNonZero(b, "kvf_code", uint64(e.Code))
	b = appendNonZero(b, "kvf_retry_ns", e.RetryNS)
	b = appendNonEmpty(b, "kvf_done", e.Done)
	return appendNonEmptyText(b, "kvf_reason", e.Reason)
}
