package link

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
)

// A hello may reach another kind of program: LMCache with a transfer channel of LMCache's own, or a process that does
// not reply. Most of these programs have a REP socket at the port. If the program cannot decode a hello, the REP socket
// does not reply, and serves no client any more until the process is restarted. kvferry cannot repair this defect and
// must not trigger the defect repeatedly. A peer that was recognized as another kind is therefore asked again only
// after UnfitBackoff, and a peer that has never replied to a hello is asked after growing delays up to that time.

// otherKind returns the explanation that two different kinds of program met.
func (c *Config) otherKind(theirs string) effects.Why {
	return effects.Why{
		Field: "kind", Ours: "kvferry, transfer_channel " + listed(c.PlaneNames), Theirs: theirs,
		Remedy: "run kvferry at both ends, or lmcache at both",
	}
}

// strange fails the attempt because the peer is of another kind.
func (c *calling) strange(theirs string) {
	c.v.Out.Mark(Marks.OtherKind)
	c.p.alien = true
	c.fail(effects.Unsupported, c.cfg.otherKind(theirs))
}

// refused fails a handshake after a reply that is not the expected message. The reply may be a message of another kind
// of program, a statement that the step failed, or malformed.
func (c *calling) refused(
	m *protocol.HixlReadyResponse, wire *protocol.Limits, body []byte, err error, otherwise effects.Code,
) {
	if m.Decode(body, wire) == nil {
		c.v.Out.Mark(Marks.RefusedByPeer)
		if m.Code != 0 {
			c.fail(effects.CodeFromWire(m.Code), effects.Why{Said: effects.Words(m.Reason)})
			return
		}
		c.fail(effects.Refused, effects.Why{
			Field: "HixlReadyResponse.ok", Theirs: "false", Remedy: "see its log: it is lmcache, or an older kvferry",
		})
		return
	}
	if theirs := protocol.Speaker(body, wire); theirs != "" {
		c.strange(theirs)
		return
	}
	why := Undecodable(err)
	// Every other channel of a node, and LMCache, reply to a hello with an empty message.
	if len(body) == 0 && c.p.state == Greeting {
		why.Remedy = "what listens there takes no hello, or failed: check that this is the peer's pd_peer_init_port, and " +
			"not its pd_peer_alloc_port; its log says more"
	}
	c.fail(otherwise, why)
}
