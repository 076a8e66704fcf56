package protocol

// A ProxyNotif tells the proxy that a rank of a prefill has sent the last batch of a request, or
// given up on it: sender to proxy, never answered. The proxy counts one per rank.
type ProxyNotif struct {
	RequestID []byte // the proxy's id of the request

	// HasExt says that both fields below are on the wire.
	HasExt bool
	Failed uint32 // kvf_failed: chunks known to be missing at the receiver
	Rank   uint32 // kvf_rank: of the sender
}

// Fields of ProxyNotif.
const (
	_ = iota // the tag
	notifRequestID
	notifFailed
	notifRank
)

var proxyNotifSchema = schema{
	name:     "ProxyNotif",
	tagged:   true,
	names:    []string{tagField, "req_id", "kvf_failed", "kvf_rank"},
	required: 1 << notifRequestID,
}

// Append appends the message to b.
func (m *ProxyNotif) Append(b []byte) []byte {
	n := 1
	if m.HasExt {
		n += 2
	}
	b = appendTag(b, TagProxyNotif, n)
	b = appendStr(appendStr(b, "req_id"), m.RequestID)
	if m.HasExt {
		b = appendUint(appendStr(b, "kvf_failed"), uint64(m.Failed))
		b = appendUint(appendStr(b, "kvf_rank"), uint64(m.Rank))
	}
	return b
}

// Decode fills m from b; RequestID is a view of it. Either extension field sets HasExt. The error
// is a *DecodeError.
func (m *ProxyNotif) Decode(b []byte, lim *Limits) error {
	*m = ProxyNotif{}
	r := open(b, lim)
	r.expectTag(TagProxyNotif)
	w := fields{r: &r, schema: &proxyNotifSchema, depth: 2}
	for w.open(); w.next(); {
		switch w.at {
		case notifRequestID:
			m.RequestID = r.text()
		case notifFailed:
			m.Failed, m.HasExt = r.uint32(), true
		case notifRank:
			m.Rank, m.HasExt = r.uint32(), true
		}
	}
	w.close()
	r.end()
	return r.result()
}
