package protocol

// A RenewRequest asks the grantor of read grants for more time, and ends grants that are finished
// with: holder to grantor, on the grantor's init channel, answered by one RenewResponse. It is ours
// alone and goes only to peers that announced CapRenew. Repeating it changes nothing but the time.
type RenewRequest struct {
	Version     uint32   // kvf_v: of these fields
	Incarnation UUID     // kvf_inc: the holder's
	To          UUID     // kvf_to: the incarnation that granted
	Operation   uint64   // kvf_op: the same for each attempt at one request
	Grants      []uint64 // kvf_grants: to be extended
	Done        []uint64 // kvf_done: finished; nothing of the holder's touches their pages any more
	Stamps      Stamps   // of the holder
}

// A RenewResponse answers it. A grant of the request that is in none of its lists stands as before.
type RenewResponse struct {
	Version     uint32   // kvf_v: of these fields
	Incarnation UUID     // kvf_inc: the grantor's
	Extended    []uint64 // kvf_extended: grants that now stand for LeaseNS
	// LeaseNS counts for the holder from when it sent the request that this answers, and for the
	// grantor from when the request came, which is never earlier. Nanoseconds.
	LeaseNS uint64   // kvf_lease_ns
	Gone    []uint64 // kvf_gone: grants that had ended; they are never revived
	Done    []uint64 // kvf_done: grants that have ended by the request's Done, now or before
	Stamps  Stamps   // of the grantor
}

// Fields of RenewRequest.
const (
	_ = iota // the tag
	renewVersion
	renewIncarnation
	renewTo
	renewOperation
	renewGrants
	renewDone
	renewClock
	renewEcho
)

// Fields of RenewResponse.
const (
	_ = iota // the tag
	renewedVersion
	renewedIncarnation
	renewedExtended
	renewedLease
	renewedGone
	renewedDone
	renewedClock
	renewedEcho
)

var (
	renewRequestSchema = schema{
		name:   "KvfRenewRequest",
		tagged: true,
		names: []string{
			tagField, "kvf_v", "kvf_inc", "kvf_to", "kvf_op", "kvf_grants", "kvf_done", "kvf_clock_ns", "kvf_echo_ns",
		},
		required: 1<<renewVersion | 1<<renewIncarnation | 1<<renewTo | 1<<renewOperation,
	}
	renewResponseSchema = schema{
		name:   "KvfRenewResponse",
		tagged: true,
		names: []string{
			tagField, "kvf_v", "kvf_inc", "kvf_extended", "kvf_lease_ns", "kvf_gone", "kvf_done", "kvf_clock_ns", "kvf_echo_ns",
		},
		required: 1<<renewedVersion | 1<<renewedIncarnation,
	}
)

// Append appends the message to b.
func (m *RenewRequest) Append(b []byte) []byte {
	b = appendTag(b, TagRenewRequest, 4+m.Stamps.count()+ones(len(m.Grants) > 0, len(m.Done) > 0))
	b = appendUint(appendStr(b, "kvf_v"), uint64(m.Version))
	b = appendUUID(appendStr(b, "kvf_inc"), m.Incarnation)
	b = appendUUID(appendStr(b, "kvf_to"), m.To)
	b = appendUint(appendStr(b, "kvf_op"), m.Operation)
	b = appendNonEmpty(b, "kvf_grants", m.Grants)
	b = appendNonEmpty(b, "kvf_done", m.Done)
	return m.Stamps.append(b)
}

// Decode fills m from b and keeps nothing of it. The error is a *DecodeError.
func (m *RenewRequest) Decode(b []byte, lim *Limits) error {
	*m = RenewRequest{Grants: m.Grants[:0], Done: m.Done[:0]}
	r := open(b, lim)
	r.expectTag(TagRenewRequest)
	w := fields{r: &r, schema: &renewRequestSchema, depth: 2}
	for w.open(); w.next(); {
		switch w.at {
		case renewVersion:
			m.Version = r.uint32()
		case renewIncarnation:
			m.Incarnation = r.uuid()
		case renewTo:
			m.To = r.uuid()
		case renewOperation:
			m.Operation = r.uint64()
		case renewGrants:
			m.Grants = r.uint64s(m.Grants)
		case renewDone:
			m.Done = r.uint64s(m.Done)
		default:
			m.Stamps.decode(&r, w.at-renewClock)
		}
	}
	w.close()
	r.end()
	return r.result()
}

// Append appends the message to b.
func (m *RenewResponse) Append(b []byte) []byte {
	b = appendTag(b, TagRenewResponse, 2+m.Stamps.count()+
		ones(len(m.Extended) > 0, m.LeaseNS != 0, len(m.Gone) > 0, len(m.Done) > 0))
	b = appendUint(appendStr(b, "kvf_v"), uint64(m.Version))
	b = appendUUID(appendStr(b, "kvf_inc"), m.Incarnation)
	b = appendNonEmpty(b, "kvf_extended", m.Extended)
	b = appendNonZero(b, "kvf_lease_ns", m.LeaseNS)
	b = appendNonEmpty(b, "kvf_gone", m.Gone)
	b = appendNonEmpty(b, "kvf_done", m.Done)
	return m.Stamps.append(b)
}

// Decode fills m from b and keeps nothing of it. The error is a *DecodeError.
func (m *RenewResponse) Decode(b []byte, lim *Limits) error {
	*m = RenewResponse{Extended: m.Extended[:0], Gone: m.Gone[:0], Done: m.Done[:0]}
	r := open(b, lim)
	r.expectTag(TagRenewResponse)
	w := fields{r: &r, schema: &renewResponseSchema, depth: 2}
	for w.open(); w.next(); {
		switch w.at {
		case renewedVersion:
			m.Version = r.uint32()
		case renewedIncarnation:
			m.Incarnation = r.uuid()
		case renewedExtended:
			m.Extended = r.uint64s(m.Extended)
		case renewedLease:
			m.LeaseNS = r.uint64()
		case renewedGone:
			m.Gone = r.uint64s(m.Gone)
		case renewedDone:
			m.Done = r.uint64s(m.Done)
		default:
			m.Stamps.decode(&r, w.at-renewedClock)
		}
	}
	w.close()
	r.end()
	return r.result()
}
