package serve

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/directory"
	"github.com/kvferry/kvferry/protocol"
)

// lookup answers who has the first of these chunks. Of more than the directory takes the first ones are looked for.
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

// holders is the answer that names peers.
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

// name is a text as bytes, in memory that is used again. One that was given stays when that grows: it keeps the old.
func (r *messages) name(text string) []byte {
	from := len(r.names)
	r.names = append(r.names, text...)
	return r.names[from:]
}
