package protocol

import "slices"

// A HixlInitRequest opens the handshake, step 1. Who asks is whoever wants to transfer.
type HixlInitRequest struct {
	LocalID  []byte // the asker's id: LMCache's JoinedID, or host:port; "" from some old senders
	EngineID []byte // the asker's transfer engine, ip:port

	HasExt bool
	Ext    HelloExt
}

// A HixlInitResponse answers it.
type HixlInitResponse struct {
	EngineID []byte // the server's transfer engine, ip:port

	HasExt bool
	Ext    HelloExt
}

// Fields of HixlInitRequest.
const (
	_ = iota // the tag
	initRequestLocalID
	initRequestEngineID
	initRequestHello // the first field of HelloExt
)

// Fields of HixlInitResponse.
const (
	_ = iota // the tag
	initResponseEngineID
	initResponseHello // the first field of HelloExt
)

var (
	initRequestSchema = schema{
		name:     "HixlInitRequest",
		tagged:   true,
		names:    slices.Concat([]string{tagField, "local_id", "engine_id"}, helloNames),
		required: 1<<initRequestLocalID | 1<<initRequestEngineID,
	}
	initResponseSchema = schema{
		name:     "HixlInitResponse",
		tagged:   true,
		names:    slices.Concat([]string{tagField, "engine_id"}, helloNames),
		required: 1 << initResponseEngineID,
	}
)

// Append appends the message to b.
func (m *HixlInitRequest) Append(b []byte) []byte {
	n := 2
	if m.HasExt {
		n += m.Ext.count()
	}
	b = appendTag(b, TagHixlInitRequest, n)
	b = appendStr(appendStr(b, "local_id"), m.LocalID)
	b = appendStr(appendStr(b, "engine_id"), m.EngineID)
	if m.HasExt {
		b = m.Ext.append(b)
	}
	return b
}

// Decode fills m from b; see the package comment for what it keeps of both. The error is a
// *DecodeError.
func (m *HixlInitRequest) Decode(b []byte, lim *Limits) error {
	*m = HixlInitRequest{Ext: m.Ext.emptied()}
	r := open(b, lim)
	r.expectTag(TagHixlInitRequest)
	w := fields{r: &r, schema: &initRequestSchema, depth: 2}
	for w.open(); w.next(); {
		switch w.at {
		case initRequestLocalID:
			m.LocalID = r.text()
		case initRequestEngineID:
			m.EngineID = r.text()
		default:
			m.Ext.decode(&r, w.at-initRequestHello)
		}
	}
	w.close()
	r.end()
	m.HasExt = m.Ext.finish(&w, initRequestHello)
	return r.result()
}

// Append appends the message to b.
func (m *HixlInitResponse) Append(b []byte) []byte {
	n := 1
	if m.HasExt {
		n += m.Ext.count()
	}
	b = appendTag(b, TagHixlInitResponse, n)
	b = appendStr(appendStr(b, "engine_id"), m.EngineID)
	if m.HasExt {
		b = m.Ext.append(b)
	}
	return b
}

// Decode fills m from b; see the package comment for what it keeps of both. The error is a
// *DecodeError.
func (m *HixlInitResponse) Decode(b []byte, lim *Limits) error {
	*m = HixlInitResponse{Ext: m.Ext.emptied()}
	r := open(b, lim)
	r.expectTag(TagHixlInitResponse)
	w := fields{r: &r, schema: &initResponseSchema, depth: 2}
	for w.open(); w.next(); {
		switch w.at {
		case initResponseEngineID:
			m.EngineID = r.text()
		default:
			m.Ext.decode(&r, w.at-initResponseHello)
		}
	}
	w.close()
	r.end()
	m.HasExt = m.Ext.finish(&w, initResponseHello)
	return r.result()
}
