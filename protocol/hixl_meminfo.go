package protocol

import "slices"

// A HixlMemInfoRequest announces the asker's buffers, step 3 of the handshake.
type HixlMemInfoRequest struct {
	LocalID []byte // as in HixlInitRequest
	Buffers []BufferInfo

	// HasExt says that both stamps are on the wire.
	HasExt bool
	Stamps Stamps   // of the asker
	Planes [][]byte // kvf_planes: of the asker, where it is read from
	Blobs  [][]byte // kvf_blobs: each plane's own words, for this server alone; as long as Planes
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
	_
	memInfoRequestPlanes
	memInfoRequestBlobs
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
		names:    slices.Concat([]string{tagField, "local_id", "buffers"}, stampNames, []string{"kvf_planes", "kvf_blobs"}),
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
		n += len(stampNames) + ones(len(m.Planes) > 0, len(m.Blobs) > 0)
	}
	b = appendTag(b, TagHixlMemInfoRequest, n)
	b = appendStr(appendStr(b, "local_id"), m.LocalID)
	b = appendBuffers(b, m.Buffers)
	if !m.HasExt {
		return b
	}
	b = m.Stamps.appendBoth(b)
	if len(m.Planes) > 0 {
		b = appendStrs(b, "kvf_planes", m.Planes)
	}
	return appendBlobs(b, m.Blobs)
}

// Decode fills m from b; LocalID, Planes and Blobs are views of it. Either stamp sets HasExt. The error is a
// *DecodeError.
func (m *HixlMemInfoRequest) Decode(b []byte, lim *Limits) error {
	*m = HixlMemInfoRequest{Buffers: m.Buffers[:0], Planes: m.Planes[:0], Blobs: m.Blobs[:0]}
	r := open(b, lim)
	r.expectTag(TagHixlMemInfoRequest)
	w := fields{r: &r, schema: &memInfoRequestSchema, depth: 2}
	for w.open(); w.next(); {
		switch w.at {
		case memInfoRequestLocalID:
			m.LocalID = r.text()
		case memInfoRequestBuffers:
			m.Buffers = r.buffers(m.Buffers)
		case memInfoRequestPlanes:
			m.Planes = r.planes(m.Planes)
		case memInfoRequestBlobs:
			m.Blobs = r.blobs(m.Blobs)
		default:
			m.Stamps.decode(&r, w.at-memInfoRequestStamps)
			m.HasExt = true
		}
	}
	w.close()
	if len(m.Blobs) > 0 {
		r.parallel("kvf_blobs", r.off, len(m.Blobs), "kvf_planes", len(m.Planes))
	}
	r.end()
	if !m.HasExt {
		m.Planes, m.Blobs = m.Planes[:0], m.Blobs[:0]
	}
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
