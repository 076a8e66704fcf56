package pd

import "github.com/kvferry/kvferry/protocol"

// What the network must know of messages, to break them and to say what came of them.

// wrongAnswer is an answer to something else than what is asked on a channel of the kind that begins with a hello.
func wrongAnswer() []byte { return (&protocol.HixlReadyResponse{}).Append(nil) }

// goodRequest is a request as a receiver gets them, of which noise cuts off the end.
func goodRequest() []byte {
	m := protocol.AllocRequest{Keys: [][]byte{[]byte("m@1@0@ab@bfloat16")}, Format: protocol.FormatKV2LTD,
		Shape: simLayout(2).Shape, Dtype: protocol.DtypeBFloat16, LastChunkTokens: tokensPerChunk}
	return m.Append(nil)
}

// readNotice is what a rank tells the proxy.
func readNotice(body []byte) (m protocol.ProxyNotif, err error) {
	err = m.Decode(body, &WireLimits)
	return m, err
}

// senseless is an answer that reads well and speaks of a chunk that nobody asked about.
func senseless(b []byte) ([]byte, bool) {
	const nobodys = 1 << 20
	var m protocol.AllocResponse
	if m.Decode(b, &WireLimits) == nil && len(m.RemoteIndexes) > 0 && !m.AllocFailed {
		m.AlreadySent = append(m.AlreadySent, nobodys)
		return m.Append(nil), true
	}
	var a protocol.PullReadyDoneAck
	if a.Decode(b, &WireLimits) == nil && !a.AllocFailed && a.Ext.Code == 0 {
		a.AlreadySent = append(a.AlreadySent, nobodys)
		return a.Append(nil), true
	}
	return nil, false
}

// legible says whether the bytes are a message.
func legible(b []byte) bool {
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
