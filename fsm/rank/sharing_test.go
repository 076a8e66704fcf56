package rank

import (
	"strconv"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/protocol"
)

// What is said to owners of shared chunks by hand.

// lookup gives a rank a message about shared chunks, of a peer or of somebody who is none.
func (r *rig) lookup(n *node, arg func(string) []string) {
	one := func(key, otherwise string) string {
		if v := arg(key); len(v) > 0 {
			return v[0]
		}
		return otherwise
	}
	number := func(key string) uint64 {
		v, err := strconv.ParseUint(one(key, "1"), 10, 64)
		if err != nil {
			r.t.Fatal(err)
		}
		return v
	}
	from := r.incarnationOf("stranger")
	if speaker := r.find(one("by", "stranger")); speaker != nil {
		from = speaker.rank.cfg.Key.OutboundName(n.name, 1, 2) // as it said in the handshake for its put
	}
	whom := n.rank.cfg.Key.InboundName(from)
	if len(arg("guessed")) > 0 { // Who is no peer knows no name that was made for one.
		whom = n.rank.cfg.Key.InboundName(r.incarnationOf("stranger"))
	}
	named, plain := []byte(one("id", "lookup")), len(arg("plain")) > 0
	var body []byte
	switch what := one("say", "get"); what {
	case "get":
		m := protocol.AscendBatchedLookupAndGetMsg{
			LookupID: named, ReceiverID: []byte("a:1"), Keys: keys(arg("keys")), PullMode: len(arg("push")) == 0, HasExt: !plain,
			Ext: protocol.P2PGetExt{
				Version: link.VersionMax, Incarnation: protocol.UUID(from), To: protocol.UUID(whom), Operation: number("op"),
				Attempt: uint32(number("try")),
			},
		}
		if len(arg("patience_ms")) > 0 {
			m.Ext.PatienceNS = number("patience_ms") * uint64(effects.Millisecond)
		}
		if !m.PullMode {
			for range m.Keys {
				m.MemIndexes, m.BufferUUIDs = append(m.MemIndexes, 0), append(m.BufferUUIDs, protocol.UUID{1})
			}
		}
		body = m.Append(nil)
	case "done":
		m := protocol.AscendBatchedLookupAndGetDoneMsg{LookupID: named, HasExt: !plain, Ext: protocol.P2PDoneExt{
			Version: link.VersionMax, Incarnation: protocol.UUID(from), To: protocol.UUID(whom), Operation: number("op"),
		}}
		if len(arg("grant")) > 0 {
			m.Ext.Grant = r.grantIDs(n, arg("grant"))[0]
		}
		body = m.Append(nil)
	case "port":
		body = (&protocol.AscendQueryDonePortMsg{}).Append(nil)
	case "side":
		body = (&protocol.P2PInitSideMsg{}).Append(nil)
	case "put":
		body = (&protocol.AscendBatchedLookupAndPutMsg{}).Append(nil)
	case "upstream":
		body = (&protocol.BatchedLookupAndGetMsg{LookupID: named, ReceiverID: []byte("a:1")}).Append(nil)
	case "answer":
		body = (&protocol.AscendBatchedLookupAndGetRetMsg{}).Append(nil)
	case "hello":
		body = (&protocol.HixlReadyRequest{}).Append(nil)
	default:
		r.t.Fatalf("nobody says %q", what)
	}
	if how := one("how", ""); how != "" {
		body = corruptBytes(r.t, body, how)
	}
	channel, ok := effects.ChannelNamed(one("channel", "lookup"))
	if !ok {
		r.t.Fatalf("no channel is called %q", one("channel", ""))
	}
	r.step(n, &effects.Received{Conn: effects.Conn(r.id()), Channel: channel, Request: effects.Request(r.id()),
		Body: body})
}

// twistLookup changes the answer to a lookup in place, and says whether it is one.
func (r *rig) twistLookup(body *[]byte, how string, at []string) bool {
	var m protocol.AscendBatchedLookupAndGetRetMsg
	if lim := protocol.DefaultLimits(); m.Decode(*body, &lim) != nil {
		return false
	}
	switch how {
	case "hits": // more than was asked for
		m.HitChunks++
		m.RemoteUUIDs, m.RemoteIndexes = append(m.RemoteUUIDs, m.RemoteUUIDs[0]), append(m.RemoteIndexes, 0)
		m.Ext.Generations = append(m.Ext.Generations, 1)
	case "none": // hits without a page
		m.RemoteUUIDs, m.RemoteIndexes, m.Ext.Generations = nil, nil, nil
	case "index":
		n, err := strconv.ParseInt(at[0], 10, 64)
		if err != nil {
			r.t.Fatal(err)
		}
		m.RemoteIndexes[0] = n
	case "buffer": // that nobody listed
		m.RemoteUUIDs[0] = protocol.UUID{3}
	case "generations":
		m.Ext.Generations = nil
	case "grant":
		m.Ext.Grant = 0
	case "plain":
		m.HasExt = false
	case "failed":
		*body = (&protocol.P2PErrorMsg{Code: protocol.P2PServerError}).Append(nil)
		return true
	default:
		r.t.Fatalf("an answer cannot be twisted as %q", how)
	}
	*body = m.Append(nil)
	return true
}
