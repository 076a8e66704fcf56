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

// otherKindReason returns the explanation that two different kinds of program met.
func (c *Config) otherKindReason(theirs string) effects.Why {
	return effects.Why{
		Field: "kind", Ours: "kvferry, transfer_channel " + joinNames(c.PlaneNames), Theirs: theirs,
		Remedy: "run kvferry at both ends, or lmcache at both",
	}
}

// failOtherKind fails the attempt because the peer is of another kind.
func (c *outboundView) failOtherKind(theirs string) {
	c.v.Out.Mark(Marks.OtherKind)
	c.p.otherKind = true
	c.failPeer(effects.Unsupported, c.cfg.otherKindReason(theirs))
}

// failUnexpected fails a handshake after a reply that is not the expected message. The reply may be a message of
// another kind of program, a statement that the step failed, or malformed.
func (c *outboundView) failUnexpected(
	m *protocol.HixlReadyResponse, wire *protocol.Limits, body []byte, err error, otherwise effects.Code,
) {
	if m.Decode(body, wire) == nil {
		c.v.Out.Mark(Marks.RefusedByPeer)
		if m.Code != 0 {
			c.failPeer(effects.CodeFromWire(m.Code), effects.Why{Said: effects.SanitizeText(m.Reason)})
			return
		}
		c.failPeer(effects.Refused, effects.Why{
			Field: "HixlReadyResponse.ok", Theirs: "false", Remedy: "see its log: it is lmcache, or an older kvferry",
		})
		return
	}
	if theirs := protocol.ProgramOf(body, wire); theirs != "" {
		c.failOtherKind(theirs)
		return
	}
	why := DecodeReason(err)
	// Every other channel of a node, and LMCache, reply to a hello with an empty message.
	if len(body) == 0 && c.p.state == Greeting {
		why.Remedy = "what listens there takes no hello, or failed: check that this is the peer's pd_peer_init_port, and " +
			"not its pd_peer_alloc_port; its log says more"
	}
	c.failPeer(otherwise, why)
}
