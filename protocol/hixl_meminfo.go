package protocol

import "slices"

// A HixlMemInfoRequest announces the asker's buffers, step 3 of the handshake.
type HixlMemInfoRequest struct {
	LocalID []byte // as in HixlInitRequest
	Buffers []BufferInfo

	// HasExt says that both stamps are on the wire.
	HasExt bool
	Stamps Stamps // of the asker
}

// A HixlMemInfoResponse announces the server's buffers. Their order matters: page indexes without
// a UUID are meant for the first one.
type HixlMemInfoResponse struct {
	Buffers []BufferInfo

	// HasExt says that both stamps are on the wire.
	HasExt bool
	Stamps Stamps // of the server
}

// Fields of HixlMemInfoRequest.
const (
	_ = iota // the tag
	memInfoRequestLocalID
	memInfoRequestBuffers
	memInfoRequestStamps // the first field of Stamps
)

// Fields of HixlMemInfoResponse.
const (
	_ = iota // the tag
	memInfoResponseBuffers
	memInfoResponseStamps // the first field of Stamps
)

var (
	memInfoRequestSchema = schema{
		name:     "HixlMemInfoRequest",
		tagged:   true,
		names:    slices.Concat([]string{tagField, "local_id", "buffers"}, stampNames),
		required: 1<<memInfoRequestLocalID | 1<<memInfoRequestBuffers,
	}
	memInfoResponseSchema = schema{
		name:     "HixlMemInfoResponse",
		tagged:   true,
		names:    slices.Concat([]string{tagField, "buffers"}, stampNames),
		required: 1 << memInfoResponseBuffers,
	}
)

// Append appends the message to b.
func (m *HixlMemInfoRequest) Append(b []byte) []byte {
	n := 2
	if m.HasExt {
		n += len(stampNames)
	}
	b = appendTag(b, TagHixlMemInfoRequest, n)
	b = appendStr(appendStr(b, "local_id"), m.LocalID)
	b = appendBuffers(b, m.Buffers)
	if m.HasExt {
		b = m.Stamps.appendBoth(b)
	}
	return b
}

// Decode fills m from b; LocalID is a view of it. Either stamp sets HasExt. The error is a *DecodeError.
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
		default:
			m.Stamps.decode(&r, w.at-memInfoRequestStamps)
			m.HasExt = true
		}
	}
	w.close()
	r.end()
	return r.result()
}

// Append appends the message to b.
func (m *HixlMemInfoResponse) Append(b []byte) []byte {
	n := 1
	if m.HasExt {
		n += len(stampNames)
	}
	b = appendBuffers(appendTag(b, TagHixlMemInfoResponse, n), m.Buffers)
	if m.HasExt {
		b = m.Stamps.appendBoth(b)
	}
	return b
}

// Decode fills m from b. Either stamp sets HasExt. The error is a *DecodeError.
func (m *HixlMemInfoResponse) Decode(b []byte, lim *Limits) error {
	*m = HixlMemInfoResponse{Buffers: m.Buffers[:0]}
	r := open(b, lim)
	r.expectTag(TagHixlMemInfoResponse)
	w := fields{r: &r, schema: &memInfoResponseSchema, depth: 2}
	for w.open(); w.next(); {
		if w.at == memInfoResponseBuffers {
			m.Buffers = r.buffers(m.Buffers)
		} else {
			m.Stamps.decode(&r, w.at-memInfoResponseStamps)
			m.HasExt = true
		}
	}
	w.close()
	r.end()
	return r.result()
}
