package pd

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/world"
)

// The functions of this file tell the simulated network how to damage and how to interpret messages.

// UnrelatedReply returns a reply of another kind than the request asks for, on a channel that begins with a handshake.
func (w *Cluster) UnrelatedReply() []byte { return (&protocol.HixlReadyResponse{}).Append(nil) }

// ValidRequest returns an allocation request. Noise consists of such requests with the end cut off.
func (w *Cluster) ValidRequest() []byte {
	m := protocol.AllocRequest{Keys: [][]byte{[]byte("m@1@0@ab@bfloat16")}, Format: protocol.FormatKV2LTD,
		Shape: simLayout(2).Shape, Dtype: protocol.DtypeBFloat16, LastChunkTokens: tokensPerChunk}
	return m.Append(nil)
}

// decodeNotice decodes the notification that a rank sends to the proxy.
func decodeNotice(body []byte) (m protocol.ProxyNotif, err error) {
	err = m.Decode(body, &WireLimits)
	return m, err
}

// ImplausibleReply changes a reply so that it can still be decoded but names a chunk that was not requested, or a code
// that only a later release has. The result is false if b is no such reply.
func (w *Cluster) ImplausibleReply(b []byte, d draw.Value) ([]byte, bool) {
	const nobodys = 1 << 20
	var m protocol.AllocResponse
	if m.Decode(b, &WireLimits) == nil && (len(m.RemoteIndexes) > 0 || m.AllocFailed) {
		if m.AllocFailed {
			return m.Append(nil), w.replaceCode(&m.Ext.Code, d)
		}
		m.AlreadySent = append(m.AlreadySent, nobodys)
		return m.Append(nil), true
	}
	var a protocol.PullReadyDoneAck
	if a.Decode(b, &WireLimits) == nil {
		if a.AllocFailed || a.Ext.Code != 0 {
			return a.Append(nil), w.replaceCode(&a.Ext.Code, d)
		}
		a.AlreadySent = append(a.AlreadySent, nobodys)
		return a.Append(nil), true
	}
	var lookup protocol.AscendBatchedLookupAndGetRetMsg
	if lookup.Decode(b, &WireLimits) == nil && w.replaceCode(&lookup.Ext.Code, d) {
		return lookup.Append(nil), true
	}
	var query protocol.CacheQueryResponse
	if query.Decode(b, &WireLimits) == nil && w.replaceCode(&query.Ext.Code, d) {
		return query.Append(nil), true
	}
	var ready protocol.HixlReadyResponse
	if ready.Decode(b, &WireLimits) == nil && !ready.OK && w.replaceCode(&ready.Code, d) {
		return ready.Append(nil), true
	}
	var end protocol.PushEnd
	if len(w.SourcePlan.Topology.Identities) > 0 && end.Decode(b, &WireLimits) == nil && w.replaceCode(&end.Code, d) {
		return end.Append(nil), true
	}
	return nil, false
}

// replaceCode replaces the code of a refusal by one that only a later release has or, where processes prove
// identities, by Forbidden, which no process of a plan states to another. It returns false for a code that makes the
// reader of the reply do something: such a code stays, as the two sides would otherwise disagree.
func (w *Cluster) replaceCode(code *uint32, d draw.Value) bool {
	switch effects.Code(*code) { //nolint:exhaustive // The other codes make the reader do something.
	case effects.Refused, effects.Malformed, effects.Mismatch, effects.Unsupported, effects.TooLarge, effects.Faulted, effects.NotFound:
		*code = effects.CodeCount + uint32(d.Below(3)/2) // Mostly the first that has no name here.
		if len(w.SourcePlan.Topology.Identities) > 0 && d.Rehash().ChancePermille(500) {
			*code = uint32(effects.Forbidden)
		}
		return true
	}
	return false
}

// MessageValidator returns the function that recognizes the messages of ranks.
func (w *Cluster) MessageValidator(*world.Conn) func(body []byte) bool { return isMessage }

// isMessage reports whether b can be decoded as a message.
func isMessage(b []byte) bool {
	for _, m := range [...]protocol.Message{
		new(protocol.PushRegistration), new(protocol.PushWithdrawal), new(protocol.PushKeep), new(protocol.PushEnd),
	} {
		if m.Decode(b, &WireLimits) == nil {
			return true
		}
	}
	_, err := protocol.PeekTag(b, &WireLimits)
	if err != nil {
		return false
	}
	_, err = protocol.Describe(b, &WireLimits)
	return err == nil
}
