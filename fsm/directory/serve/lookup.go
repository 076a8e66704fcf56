package serve

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/directory"
	"github.com/kvferry/kvferry/protocol"
)

// lookup answers with the peers that have the first of the requested chunks. If there are too many hashes, only the
// first ones are looked up.
func (m *Machine) lookup(h *heard) {
	x := &m.read.lookup
	if !m.decode(h, x) {
		return
	}
	var code effects.Code
	m.read.peers, code = m.known.Lookup(h.now, h.sender(&x.Worker, protocol.UUID{}), m.bits(x.Hashes), m.read.peers[:0])
	if code != effects.OK && code != effects.TooLarge {
		m.refuse(h, code, about(&x.Worker, "lookup", code))
		return
	}
	h.reply(m.holders(m.read.peers).Append(h.out.Arena()))
}

// holders converts peers to the reply message.
func (m *Machine) holders(peers []directory.Peer) *protocol.BatchedP2PLookupRetMsg {
	r := &m.read
	r.names, r.answer.Holders = r.names[:0], r.answer.Holders[:0]
	for i := range peers {
		p := &peers[i]
		r.answer.Holders = append(r.answer.Holders, protocol.Holder{
			InstanceID: r.name(p.Instance), Location: r.name(p.Location), PeerInitURL: r.name(p.URL),
			HitChunks: uint32(p.Chunks),
		})
	}
	return &r.answer
}

// name returns a copy of a string in reused memory. A copy remains valid when the memory grows, because the old array
// is kept by the copy.
func (r *messages) name(text string) []byte {
	from := len(r.names)
	r.names = append(r.names, text...)
	return r.names[from:]
}
