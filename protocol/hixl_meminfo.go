package protocol

// A HixlMemInfoRequest announces the asker's buffers, step 3 of the handshake.
type HixlMemInfoRequest struct {
	LocalID []byte // as in HixlInitRequest
	Buffers []BufferInfo
}

// A HixlMemInfoResponse announces the server's buffers. Their order matters: page indexes without
// a UUID are meant for the first one.
type HixlMemInfoResponse struct {
	Buffers []BufferInfo
}

// Fields of HixlMemInfoRequest.
const (
	_ = iota // the tag
	memInfoRequestLocalID
	memInfoRequestBuffers
)

// Fields of HixlMemInfoResponse.
const (
	_ = iota // the tag
	memInfoResponseBuffers
)

var (
	memInfoRequestSchema = schema{
		name:     "HixlMemInfoRequest",
		tagged:   true,
		names:    []string{tagField, "local_id", "buffers"},
		required: 1<<memInfoRequestLocalID | 1<<memInfoRequestBuffers,
	}
	memInfoResponseSchema = schema{
		name:     "HixlMemInfoResponse",
		tagged:   true,
		names:    []string{tagField, "buffers"},
		required: 1 << memInfoResponseBuffers,
	}
)

// Append appends the message to b.
func (m *HixlMemInfoRequest) Append(b []byte) []byte {
	b = appendTag(b, TagHixlMemInfoRequest, 2)
	b = appendStr(appendStr(b, "local_id"), m.LocalID)
	return appendBuffers(b, m.Buffers)
}

// Decode fills m from b; LocalID is a view of it. The error is a *DecodeError.
func (m *HixlMemInfoRequest) Decode(b []byte, lim *Limits) error {
	*m = HixlMemInfoRequest{Buffers: m.Buffers[:0]}
	r := open(b, lim)
	r.expectTag(TagHixlMemInfoRequest)
	w := fields{r: &r, schema: &memInfoRequestSchema, depth: 2}
	for w.open(); w.next(); {
		switch w.at {
		case memInfoRequestLocalID:
			m.LocalID = r.text()
		case memInfoRequestBuffers:
			m.Buffers = r.buffers(m.Buffers)
		}
	}
	w.close()
	r.end()
	return r.result()
}

// Append appends the message to b.
func (m *HixlMemInfoResponse) Append(b []byte) []byte {
	return appendBuffers(appendTag(b, TagHixlMemInfoResponse, 1), m.Buffers)
}

// Decode fills m from b. The error is a *DecodeError.
func (m *HixlMemInfoResponse) Decode(b []byte, lim *Limits) error {
	*m = HixlMemInfoResponse{Buffers: m.Buffers[:0]}
	r := open(b, lim)
	r.expectTag(TagHixlMemInfoResponse)
	w := fields{r: &r, schema: &memInfoResponseSchema, depth: 2}
	for w.open(); w.next(); {
		if w.at == memInfoResponseBuffers {
			m.Buffers = r.buffers(m.Buffers)
		}
	}
	w.close()
	r.end()
	return r.result()
}
