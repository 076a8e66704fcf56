package protocol

// An EndRequest says how a request ended at its sender: sender to receiver, on the receiver's alloc channel, answered
// by one EndResponse. It is ours alone. It needs no handshake, no page and no key: it names the request, and that is
// enough, so it arrives where nothing else of the request can. Repeating it changes nothing.
type EndRequest struct {
	Version uint32 // kvf_v: of these fields
	// Incarnation and To are the two names of the handshake, if the two ends shook hands.
	Incarnation UUID   // kvf_inc: the sender's
	To          UUID   // kvf_to: the receiver's
	Operation   uint64 // kvf_op: above those of all batches of the request that were sent before
	Request     []byte // kvf_req: the request; an id of one attempt
	Code        uint32 // kvf_code: why no more of the request comes; 0: all of it was sent
	Reason      []byte // kvf_reason: the same in words
}

// An EndResponse answers it: the receiver has noted it.
type EndResponse struct {
	Version uint32 // kvf_v: of these fields
	// Code is not 0 where the receiver has to say something of what the sender sent: its engine waits for chunks that the
	// request did not have.
	Code   uint32 // kvf_code
	Reason []byte // kvf_reason
}

// Fields of EndRequest.
const (
	_ = iota // the tag
	requestEndVersion
	requestEndIncarnation
	requestEndTo
	requestEndOperation
	requestEndName
	requestEndCode
	requestEndReason
)

// Fields of EndResponse.
const (
	_ = iota // the tag
	requestEndedVersion
	requestEndedCode
	requestEndedReason
)

var (
	endRequestSchema = schema{
		name:   "KvfEndRequest",
		tagged: true,
		names: []string{
			tagField, "kvf_v", "kvf_inc", "kvf_to", "kvf_op", "kvf_req", "kvf_code", "kvf_reason",
		},
		required: 1<<requestEndVersion | 1<<requestEndOperation | 1<<requestEndName,
	}
	endResponseSchema = schema{
		name:     "KvfEndResponse",
		tagged:   true,
		names:    []string{tagField, "kvf_v", "kvf_code", "kvf_reason"},
		required: 1 << requestEndedVersion,
	}
)

// Append appends the message to b.
func (m *EndRequest) Append(b []byte) []byte {
	b = appendTag(b, TagEndRequest, 3+
		ones(m.Incarnation != UUID{}, m.To != UUID{}, m.Code != 0, len(m.Reason) > 0))
	b = appendUint(appendStr(b, "kvf_v"), uint64(m.Version))
	b = appendNonZeroUUID(b, "kvf_inc", m.Incarnation)
	b = appendNonZeroUUID(b, "kvf_to", m.To)
	b = appendUint(appendStr(b, "kvf_op"), m.Operation)
	b = appendStr(appendStr(b, "kvf_req"), m.Request)
	b = appendNonZero(b, "kvf_code", uint64(m.Code))
	return appendNonEmptyText(b, "kvf_reason", m.Reason)
}

// Decode fills m from b; Request and Reason are views of it. The error is a *DecodeError.
func (m *EndRequest) Decode(b []byte, lim *Limits) error {
	*m = EndRequest{}
	r := open(b, lim)
	r.expectTag(TagEndRequest)
	w := fields{r: &r, schema: &endRequestSchema, depth: 2}
	for w.open(); w.next(); {
		switch w.at {
		case requestEndVersion:
			m.Version = r.uint32()
		case requestEndIncarnation:
			m.Incarnation = r.uuid()
		case requestEndTo:
			m.To = r.uuid()
		case requestEndOperation:
			m.Operation = r.uint64()
		case requestEndName:
			m.Request = r.text()
		case requestEndCode:
			m.Code = r.uint32()
		default:
			m.Reason = r.text()
		}
	}
	w.close()
	r.end()
	return r.result()
}

// Append appends the message to b.
func (m *EndResponse) Append(b []byte) []byte {
	b = appendTag(b, TagEndResponse, 1+ones(m.Code != 0, len(m.Reason) > 0))
	b = appendUint(appendStr(b, "kvf_v"), uint64(m.Version))
	b = appendNonZero(b, "kvf_code", uint64(m.Code))
	return appendNonEmptyText(b, "kvf_reason", m.Reason)
}

// Decode fills m from b; Reason is a view of it. The error is a *DecodeError.
func (m *EndResponse) Decode(b []byte, lim *Limits) error {
	*m = EndResponse{}
	r := open(b, lim)
	r.expectTag(TagEndResponse)
	w := fields{r: &r, schema: &endResponseSchema, depth: 2}
	for w.open(); w.next(); {
		switch w.at {
		case requestEndedVersion:
			m.Version = r.uint32()
		case requestEndedCode:
			m.Code = r.uint32()
		default:
			m.Reason = r.text()
		}
	}
	w.close()
	r.end()
	return r.result()
}
