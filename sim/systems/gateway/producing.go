package gateway

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
)

// This file has the part of a plain engine that writes to the node: a producer.

// A registration is a registration of the node with a rank of a producer.
type registration struct {
	rank    int
	request string
	engine  string // the engine name of the agent to write to, as the registration states it
	port    uint16 // of its side channel
	agent   string // its name; "": not known yet
	target  protocol.NixlMetadata
	asked   bool
	blocks  []uint32
	writing bool
	left    int // pages that are not stored yet
	ended   bool
}

// handleRegistration handles a registration of the node with a rank.
func (e *plainEngine) handleRegistration(rank int, body []byte, out *effects.Effects) {
	limits := protocol.DefaultLimits()
	var m protocol.PushRegistration
	if m.Decode(body, &limits) != nil || len(m.Blocks) != 1 || m.HasExt {
		observe(out, factRegistered, effects.Malformed, "the node sends "+e.name+" a registration that makes no sense")
		return
	}
	key := fmt.Sprintf("%s at %d", m.RequestID, rank)
	ranks := e.shape.ranksOf(e.name)
	switch {
	case e.seen[key]:
		observe(out, factRegistered, effects.Invalid, fmt.Sprintf("the node registers %s twice with rank %d of %s, which writes twice",
			m.RequestID, rank, e.name))
		return
	case string(m.Host) != hostName || m.TPSize != 1 || m.Remote.TPSize != ranks || m.Remote.PPSize != 1 ||
		string(m.Remote.EngineID) != e.name:
		observe(out, factRegistered, effects.Invalid, fmt.Sprintf("the node registers with %s as %q with %d ranks, for %q with %d ranks",
			e.name, m.Host, m.TPSize, m.Remote.EngineID, m.Remote.TPSize))
		return
	case !e.shape.isFit(e.name) || e.oddity.isRestart():
		observe(out, factRegistered, effects.Mismatch, fmt.Sprintf("the node registers with %s, whose pages are not like its own", e.name))
		return
	}
	e.seen[key] = true
	observe(out, factRegistered, effects.OK, "")
	r := registration{rank: rank, request: string(m.RequestID), engine: string(m.EngineID), port: uint16(m.Port)}
	for _, block := range m.Blocks[0] {
		r.blocks = append(r.blocks, uint32(block))
	}
	e.registrations = append(e.registrations, r)
	e.advanceRegistration(len(e.registrations)-1, out)
}

// advanceRegistration does for a registration of the node what has become possible: the pages are written when the agent
// is known and the request is computed. A rank with heads that another rank writes only says that it has ended.
func (e *plainEngine) advanceRegistration(i int, out *effects.Effects) {
	r := &e.registrations[i]
	base := string(protocol.TrimRequestSuffix([]byte(r.request)))
	until, isComputed := e.computed[base]
	if r.ended || r.writing || !isComputed || until < e.now {
		return
	}
	if r.agent == "" {
		if !r.asked {
			r.asked = true
			q := protocol.NixlMetadataRequest{}
			e.toNode(out, r.rank, &frame{kind: frameQuery, id: uint64(r.port), body: q.Append(nil)}, purpose{kind: purposeAgentQuery,
				id: uint64(i)})
		}
		return
	}
	r.writing = true
	if !e.shape.isWriter(e.name, uint32(r.rank)) {
		e.complete(r, out)
		return
	}
	r.left = layerCount * len(r.blocks) * int(e.layout.shares)
	first := e.shape.firstCell(e.name, uint32(r.rank))
	for layer := range layerCount {
		for k, block := range r.blocks {
			for share := range e.layout.shares {
				f := &frame{kind: frameWrite, to: r.agent, id: addressOf(&r.target, layer, block, first+share, e.shape.sharesOf(hostName)),
					body: []byte(contentOf(base, layer, positionCount-len(r.blocks)+k, first+share))}
				e.toNode(out, r.rank, f, purpose{kind: purposeStore, id: uint64(i)})
			}
		}
	}
}

// handleAgentMetadata handles the metadata of the agent that a registration names.
func (e *plainEngine) handleAgentMetadata(i int, m *protocol.NixlMetadata, ok bool, out *effects.Effects) {
	r := &e.registrations[i]
	if !ok || string(m.EngineID) != r.engine { // Like vLLM, it refuses another engine at that address.
		r.ended = true
		return
	}
	r.agent, r.target = string(m.Agent), *m
	e.advanceRegistration(i, out)
}

// handleStored handles the end of a write of a page.
func (e *plainEngine) handleStored(i int, code effects.Code, out *effects.Effects) {
	r := &e.registrations[i]
	if code != effects.OK {
		r.ended = true
	}
	if r.left--; r.left == 0 && !r.ended {
		e.complete(r, out)
	}
}

// complete notifies the node that a rank has written everything.
func (e *plainEngine) complete(r *registration, out *effects.Effects) {
	r.ended = true
	m := protocol.PushCompletion{RequestID: []byte(r.request), Ranks: e.shape.ranksOf(e.name)}
	e.sendNote(out, r.rank, &frame{kind: frameNote, to: r.agent, body: m.Append(nil)}, purpose{kind: purposeDone})
}
