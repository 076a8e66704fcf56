package link

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
)

// A hello may meet another kind of program: LMCache with its own transfer channels, or nothing that answers. Most of
// them have a REP socket there, and one that cannot read a hello answers nothing and serves nobody any more until it is
// restarted: a defect of theirs that we cannot mend, only not repeat. So who was found to be of another kind is asked
// again after UnfitBackoff only, and who never answered a hello after ever longer times up to that.

// otherKind says which two kinds met.
func (c *Config) otherKind(theirs string) effects.Why {
	return effects.Why{
		Field: "kind", Ours: "kvferry, transfer_channel " + listed(c.PlaneNames), Theirs: theirs,
		Remedy: "run kvferry at both ends, or lmcache at both",
	}
}

// strange gives up a peer that is of another kind.
func (c *calling) strange(theirs string) {
	c.v.Out.Mark(Marks.OtherKind)
	c.p.alien = true
	c.fail(effects.Unsupported, c.cfg.otherKind(theirs))
}

// refused ends a handshake whose answer was not the one that belongs there: another kind's, a word that the step
// failed, or nonsense.
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
	if len(body) == 0 && c.p.state == Greeting { // So every other channel of a node, and LMCache, answer a hello.
		why.Remedy = "what listens there takes no hello, or failed: check that this is the peer's pd_peer_init_port, and " +
			"not its pd_peer_alloc_port; its log says more"
	}
	c.fail(otherwise, why)
}
