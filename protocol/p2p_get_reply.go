package protocol

import "math"

// An AscendBatchedLookupAndGetRetMsg answers an AscendBatchedLookupAndGetMsg. In push it comes when the chunks are
// stored, in pull when they may be read. Zero hits is a miss, and the answer of a plain owner that is at its bound.
type AscendBatchedLookupAndGetRetMsg struct {
	HitChunks uint32 // how many of the question's keys, from the first
	// RemoteUUIDs and RemoteIndexes are the owner's pages, one per hit, in pull; else empty. Decode checks that they are
	// as many as each other, and as the hits if there are any. Range unchecked.
	RemoteUUIDs   []UUID
	RemoteIndexes []int64
	LeaseSeconds  float64 // how long the pages may be read; 0 is unsaid; range unchecked, see LeaseNS

	HasExt bool
	Ext    P2PGetReplyExt
}

// P2PGetReplyExt is what kvferry adds to the answer. The lease over all pages is LeaseSeconds; for the requester it
// counts from when it sent the question that this answers.
type P2PGetReplyExt struct {
	Version     uint32   // kvf_v: of these fields; its presence is HasExt
	Incarnation UUID     // kvf_inc: the owner's
	Grant       uint64   // kvf_grant: pull: the one read grant over all pages; 0 is none
	Generations []uint64 // kvf_gens: pull: the granted generation of each page, as long as RemoteIndexes or empty
	Code        uint32   // kvf_code: why nothing is served; 0 if the hits are what there is
	RetryNS     uint64   // kvf_retry_ns: when another question makes sense, nanoseconds from now; 0 is unknown
	Reason      []byte   // kvf_reason: Code for people; without a code, why there are no more hits
	Stamps      Stamps   // of the owner
}

// Fields of AscendBatchedLookupAndGetRetMsg.
const (
	_ = iota // the tag
	gotHits
	gotUUIDs
	gotIndexes
	gotLease
	gotVersion
	gotIncarnation
	gotGrant
	gotGenerations
	gotCode
	gotRetry
	gotReason
	gotClock // the first field of Stamps
	_
)

var p2pGetReplySchema = schema{
	name:   "AscendBatchedLookupAndGetRetMsg",
	tagged: true,
	names: []string{
		tagField, "num_hit_chunks", "remote_buffer_uuids", "remote_mem_indexes", "lease_ttl_s", "kvf_v", "kvf_inc",
		"kvf_grant", "kvf_gens", "kvf_code", "kvf_retry_ns", "kvf_reason", "kvf_clock_ns", "kvf_echo_ns",
	},
	required: 1 << gotHits,
}

// LeaseNS is the lease in nanoseconds, rounded down. What is no time that can be waited for is none: not a number, or
// negative. What is longer than can be counted is as long as can be.
func (m *AscendBatchedLookupAndGetRetMsg) LeaseNS() int64 {
	const second = 1e9
	switch ns := m.LeaseSeconds * second; {
	case !(ns > 0):
		return 0
	case ns >= math.MaxInt64:
		return math.MaxInt64
	default:
		return int64(ns)
	}
}

// SetLeaseNS states a lease in nanoseconds, which LeaseNS reads as no longer.
func (m *AscendBatchedLookupAndGetRetMsg) SetLeaseNS(ns int64) {
	const second = 1e9
	for m.LeaseSeconds = float64(ns) / second; m.LeaseNS() > max(ns, 0); {
		m.LeaseSeconds = math.Nextafter(m.LeaseSeconds, 0)
	}
}

// Append appends the message to b.
func (m *AscendBatchedLookupAndGetRetMsg) Append(b []byte) []byte {
	n := 4
	if m.HasExt {
		n += m.Ext.count()
	}
	b = appendTag(b, TagAscendBatchedLookupAndGetRetMsg, n)
	b = appendUint(appendStr(b, "num_hit_chunks"), uint64(m.HitChunks))
	b = appendUUIDs(b, "remote_buffer_uuids", m.RemoteUUIDs)
	b = appendInts(b, "remote_mem_indexes", m.RemoteIndexes)
	b = appendFloat(appendStr(b, "lease_ttl_s"), m.LeaseSeconds)
	if m.HasExt {
		b = m.Ext.append(b)
	}
	return b
}

// Decode fills m from b; see the package comment for what it keeps of both. The error is a *DecodeError.
func (m *AscendBatchedLookupAndGetRetMsg) Decode(b []byte, lim *Limits) error {
	*m = AscendBatchedLookupAndGetRetMsg{
		RemoteUUIDs: m.RemoteUUIDs[:0], RemoteIndexes: m.RemoteIndexes[:0], Ext: m.Ext.emptied(),
	}
	r := open(b, lim)
	r.expectTag(TagAscendBatchedLookupAndGetRetMsg)
	w := fields{r: &r, schema: &p2pGetReplySchema, depth: 2}
	uuidsAt, indexesAt, generationsAt := 0, 0, 0
	for w.open(); w.next(); {
		switch w.at {
		case gotHits:
			m.HitChunks = r.uint32()
		case gotUUIDs:
			uuidsAt = r.off
			m.RemoteUUIDs = r.uuids(m.RemoteUUIDs)
		case gotIndexes:
			indexesAt = r.off
			m.RemoteIndexes = r.int64s(m.RemoteIndexes)
		case gotLease:
			m.LeaseSeconds = r.float()
		case gotGenerations:
			generationsAt = r.off
			m.Ext.Generations = r.uint64s(m.Ext.Generations)
		default:
			m.Ext.decode(&r, w.at)
		}
	}
	w.close()
	r.end()
	if n := len(m.RemoteIndexes); n > 0 {
		r.parallel("remote_mem_indexes", indexesAt, n, "num_hit_chunks", int(m.HitChunks))
	}
	r.parallel("remote_buffer_uuids", uuidsAt, len(m.RemoteUUIDs), "remote_mem_indexes", len(m.RemoteIndexes))
	if m.HasExt = w.has(gotVersion); !m.HasExt {
		m.Ext = m.Ext.emptied()
	} else if n := len(m.Ext.Generations); n > 0 {
		r.parallel("kvf_gens", generationsAt, n, "remote_mem_indexes", len(m.RemoteIndexes))
	}
	return r.result()
}

// emptied returns no extension, and keeps the slice for the next.
func (e *P2PGetReplyExt) emptied() P2PGetReplyExt {
	return P2PGetReplyExt{Generations: e.Generations[:0]}
}

func (e *P2PGetReplyExt) decode(r *reader, field int) {
	switch field {
	case gotVersion:
		e.Version = r.uint32()
	case gotIncarnation:
		e.Incarnation = r.uuid()
	case gotGrant:
		e.Grant = r.uint64()
	case gotCode:
		e.Code = r.uint32()
	case gotRetry:
		e.RetryNS = r.uint64()
	case gotReason:
		e.Reason = r.text()
	default:
		e.Stamps.decode(r, field-gotClock)
	}
}

// count says how many fields append will write.
func (e *P2PGetReplyExt) count() int {
	return 1 + e.Stamps.count() + ones(e.Incarnation != UUID{}, e.Grant != 0, len(e.Generations) > 0, e.Code != 0,
		e.RetryNS != 0, len(e.Reason) > 0)
}

func (e *P2PGetReplyExt) append(b []byte) []byte {
	b = appendUint(appendStr(b, "kvf_v"), uint64(e.Version))
	b = appendNonZeroUUID(b, "kvf_inc", e.Incarnation)
	b = appendNonZero(b, "kvf_grant", e.Grant)
	b = appendNonEmpty(b, "kvf_gens", e.Generations)
	b = appendNonZero(b, "kvf_code", uint64(e.Code))
	b = appendNonZero(b, "kvf_retry_ns", e.RetryNS)
	b = appendNonEmptyText(b, "kvf_reason", e.Reason)
	return e.Stamps.append(b)
}
