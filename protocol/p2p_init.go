package protocol

// A P2PInitSideMsg ends a handshake between peers that share: it asks for the lookup socket, on the init socket.
type P2PInitSideMsg struct{}

// A P2PInitSideRetMsg answers it.
type P2PInitSideRetMsg struct {
	PeerLookupURL []byte // host:port, without a scheme
}

// Fields of P2PInitSideRetMsg.
const (
	_ = iota // the tag
	initSideURL
)

var (
	initSideSchema      = schema{name: "P2PInitSideMsg", tagged: true, names: []string{tagField}}
	initSideReplySchema = schema{
		name:     "P2PInitSideRetMsg",
		tagged:   true,
		names:    []string{tagField, "peer_lookup_url"},
		required: 1 << initSideURL,
	}
)

// Append appends the message to b.
func (m *P2PInitSideMsg) Append(b []byte) []byte { return appendTag(b, TagP2PInitSideMsg, 0) }

// Decode checks that b is this message. The error is a *DecodeError.
func (m *P2PInitSideMsg) Decode(b []byte, lim *Limits) error {
	return decodeBare(b, lim, TagP2PInitSideMsg, &initSideSchema)
}

// Append appends the message to b.
func (m *P2PInitSideRetMsg) Append(b []byte) []byte {
	b = appendTag(b, TagP2PInitSideRetMsg, 1)
	return appendStr(appendStr(b, "peer_lookup_url"), m.PeerLookupURL)
}

// Decode fills m from b; PeerLookupURL is a view of it. The error is a *DecodeError.
func (m *P2PInitSideRetMsg) Decode(b []byte, lim *Limits) error {
	*m = P2PInitSideRetMsg{}
	r := open(b, lim)
	r.expectTag(TagP2PInitSideRetMsg)
	w := fields{r: &r, schema: &initSideReplySchema, depth: 2}
	for w.open(); w.next(); {
		if w.at == initSideURL {
			m.PeerLookupURL = r.text()
		}
	}
	w.close()
	r.end()
	return r.result()
}
