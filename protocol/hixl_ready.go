package protocol

// A HixlReadyRequest asks whether the server's engine has connected back, step 2 of the handshake.
type HixlReadyRequest struct {
	LocalID []byte // as in HixlInitRequest
}

// A HixlReadyResponse answers it. With OK false it is also the answer to any step that failed.
type HixlReadyResponse struct {
	OK     bool
	Code   uint32 // kvf_code: why not; 0 if it is not said, as by plain peers
	Reason []byte // kvf_reason: the same for people
}

// Fields of HixlReadyRequest.
const (
	_ = iota // the tag
	readyRequestLocalID
)

// Fields of HixlReadyResponse.
const (
	_ = iota // the tag
	readyResponseOK
	readyResponseCode
	readyResponseReason
)

var (
	readyRequestSchema = schema{
		name:     "HixlReadyRequest",
		tagged:   true,
		names:    []string{tagField, "local_id"},
		required: 1 << readyRequestLocalID,
	}
	readyResponseSchema = schema{
		name:     "HixlReadyResponse",
		tagged:   true,
		names:    []string{tagField, "ok", "kvf_code", "kvf_reason"},
		required: 1 << readyResponseOK,
	}
)

// Append appends the message to b.
func (m *HixlReadyRequest) Append(b []byte) []byte {
	b = appendTag(b, TagHixlReadyRequest, 1)
	return appendStr(appendStr(b, "local_id"), m.LocalID)
}

// Decode fills m from b; LocalID is a view of it. The error is a *DecodeError.
func (m *HixlReadyRequest) Decode(b []byte, lim *Limits) error {
	*m = HixlReadyRequest{}
	r := open(b, lim)
	r.expectTag(TagHixlReadyRequest)
	w := fields{r: &r, schema: &readyRequestSchema, depth: 2}
	for w.open(); w.next(); {
		if w.at == readyRequestLocalID {
			m.LocalID = r.text()
		}
	}
	w.close()
	r.end()
	return r.result()
}

// Append appends the message to b.
func (m *HixlReadyResponse) Append(b []byte) []byte {
	b = appendTag(b, TagHixlReadyResponse, 1+ones(m.Code != 0, len(m.Reason) > 0))
	b = appendBool(appendStr(b, "ok"), m.OK)
	b = appendNonZero(b, "kvf_code", uint64(m.Code))
	return appendNonEmptyText(b, "kvf_reason", m.Reason)
}

// Decode fills m from b; Reason is a view of it. The error is a *DecodeError.
func (m *HixlReadyResponse) Decode(b []byte, lim *Limits) error {
	*m = HixlReadyResponse{}
	r := open(b, lim)
	r.expectTag(TagHixlReadyResponse)
	w := fields{r: &r, schema: &readyResponseSchema, depth: 2}
	for w.open(); w.next(); {
		switch w.at {
		case readyResponseOK:
			m.OK = r.boolean()
		case readyResponseCode:
			m.Code = r.uint32()
		case readyResponseReason:
			m.Reason = r.text()
		}
	}
	w.close()
	r.end()
	return r.result()
}
