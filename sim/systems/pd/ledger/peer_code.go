package ledger

import (
	"cmp"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// What a rank tells its engine and its peers has limits of its own, whatever a peer has sent to the rank.

var (
	checkKnownCode    = oracle.NewCheck("S11", "codes that ranks tell")
	checkMessageBytes = oracle.NewCheck("S17", "bytes of the messages that are sent")
)

// peerCodeOracle judges what ranks tell: a code is one of ours although a peer of a later release may have further
// codes (S11), and no message is longer than its reader accepts (S17).
type peerCodeOracle struct{ oracleBase }

func (*peerCodeOracle) subscribe(l *oracle.Subscriptions[peerCodeOracle]) {
	oracle.On(l, func(o *peerCodeOracle, c *oracle.Call, e *effects.Deliver) {
		o.verifyCode(o.nodeOf(c), "an outcome", e.Code)
	})
	oracle.On(l, func(o *peerCodeOracle, c *oracle.Call, e *effects.Observe) {
		o.verifyCode(o.nodeOf(c), "a fact", e.Code)
	})
	oracle.On(l, func(o *peerCodeOracle, c *oracle.Call, e *effects.Send) { o.verifyLength(o.nodeOf(c), len(e.Body)) })
	oracle.On(l, func(o *peerCodeOracle, c *oracle.Call, e *effects.Reply) { o.verifyLength(o.nodeOf(c), len(e.Body)) })
}

// verifyCode checks that a code has a name. The ledger does not ask effects.CodeFromWire, because that is what may be
// wrong.
func (or *peerCodeOracle) verifyCode(n *world.Node, kind string, code effects.Code) {
	if or.countJudged(checkKnownCode); code >= effects.CodeCount {
		or.fail(checkKnownCode, "node %d tells %s with code %d, which no code has as its number", n.AsSubject(), kind, int(code))
	}
}

// verifyLength checks that a message is no longer than the ranks accept. All ranks have the same limit.
func (or *peerCodeOracle) verifyLength(n *world.Node, length int) {
	limit := cmp.Or(pd.InfoOf(n).Cfg.Wire.MessageBytes, pd.WireLimits.MessageBytes)
	if or.countJudged(checkMessageBytes); length > limit {
		or.fail(checkMessageBytes, "node %d sends a message of %d bytes, and %d are allowed", n.AsSubject(), length, limit)
	}
}
