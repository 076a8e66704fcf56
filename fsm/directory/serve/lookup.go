package serve

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/directory"
	"github.com/kvferry/kvferry/protocol"
)

// handleLookup answers with the peers that have the first of the requested chunks. If there are too many hashes, only
// the first ones are looked up.
func (m *Machine) handleLookup(h *receivedMessage) {
	x := &m.messages.lookup
	if !m.decodeMessage(h, x) {
		return
	}
	var code effects.Code
	m.messages.peers, code = m.directory.Lookup(h.now, h.senderOf(&x.Worker, protocol.UUID{}), m.hashBits(x.Hashes), m.messages.peers[:0])
	if code != effects.OK && code != effects.TooLarge {
		m.refuseMessage(h, code, describeRefusal(&x.Worker, "lookup", code))
		return
	}
	h.sendReply(m.encodeHolders(m.messages.peers).Append(h.out.Arena()))
}

// encodeHolders converts peers to the reply message.
func (m *Machine) encodeHolders(peers []directory.Peer) *protocol.BatchedP2PLookupRetMsg {
	r := &m.messages
	r.names, r.lookupReply.Holders = r.names[:0], r.lookupReply.Holders[:0]
	for i := range peers {
		p := &peers[i]
		r.lookupReply.Holders = append(r.lookupReply.Holders, protocol.Holder{
			InstanceID: r.copyName(p.Instance), Location: r.copyName(p.Location), PeerInitURL: r.copyName(p.URL),
			HitChunks: uint32(p.Chunks),
		})
	}
	return &r.lookupReply
}

// copyName returns a copy of a string in reused memory. A copy remains valid when the memory grows, because the old
// array is kept by the copy.
func (r *messages) copyName(text string) []byte {
	from := len(r.names)
	r.names = append(r.names, text...)
	return r.names[from:]
}
