package ledger

import (
	"cmp"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// Any peer can shake hands in one name after the other. A peer that has sent a request keeps its row in the table for a
// time beside those: only peers that sent requests too can displace it, and only if there are more of them than rows.

var checkDisplaced = oracle.NewCheck("S18", "peers that asked and keep their place")

// displacedOracle judges which peers a receiver no longer knows.
type displacedOracle struct {
	judge
	perLife[displacedLife]
}

func (*displacedOracle) listen(l *oracle.Listen[displacedOracle]) {
	oracle.On(l, func(o *displacedOracle, _ *oracle.Call, e world.LinkLost) { o.lost(e.Node, e.Peer) })
}

// displacedLife records the names in which one incarnation of a receiver got requests.
type displacedLife struct {
	askers []asker `snap:"skip"` // all that a refusal depends on is in the waiters, too, but for how long ago it was
}

// asker is one of these names.
type asker struct {
	who   effects.Incarnation
	heard effects.Time // its newest request, by the receiver's clock
	asked bool         // there was a request
	taken bool         // a request was not refused as a stranger's
	away  bool         // its link was lost since
}

func (s *displacedLife) startReply() { s.askers = s.askers[:0] }

// of returns the record of a name, and creates it if there is none.
func (or *displacedOracle) of(n *world.Node, who effects.Incarnation) *asker {
	my := or.at(n)
	i := slices.IndexFunc(my.askers, func(c asker) bool { return c.who == who })
	if i < 0 {
		i = len(my.askers)
		my.askers = append(my.askers, asker{who: who})
	}
	return &my.askers[i]
}

// speaks records a message in the name who, to a node in the name to. If n knows the peer by these names, the peer
// competes for the rows from now on, whatever the message was. Example: three strangers shake hands, and each sends an
// end-of-request message.
func (or *displacedOracle) speaks(n *world.Node, who, to effects.Incarnation) {
	if who != (effects.Incarnation{}) && pd.Believes(n, who, to) {
		or.of(n, who).asked = true
	}
}

// lost records that a peer's link is lost: the peer has to shake hands again, and its waiting requests are refused.
func (or *displacedOracle) lost(n *world.Node, who effects.Incarnation) {
	or.of(n, who).away = true
	waiters := or.all().queue.at(n).waiters
	for i := range waiters {
		waiters[i].severed = waiters[i].severed || waiters[i].peer == who
	}
}

// answered checks the reply to a request in a name that n knows. A peer that sends requests on other ports of n, for
// chunks or for renewals, has a row, too, and is not counted here: such nodes are not judged.
func (or *displacedOracle) answered(n *world.Node, w *waiter) {
	t := or.truth()
	if n.Lends || both(n) || w.peer == (effects.Incarnation{}) || !w.known || !t.asks || !t.tells || !t.reply.m.HasExt {
		return
	}
	c := or.of(n, w.peer)
	ago := w.came.Sub(c.heard)
	c.heard = max(c.heard, w.came)
	if effects.CodeFromWire(t.reply.m.Ext.Code) != effects.Stale {
		if c.taken {
			or.judged(checkDisplaced)
		}
		c.taken = true
		// The answer to a request from before the loss says nothing of the peer now. Example: of two requests that
		// wait, one is answered as abandoned before the sweep after the loss comes to the other.
		c.away = c.away && w.severed
		return
	}
	if w.severed || !or.keeps(n, c, ago) {
		c.taken = false // It has to shake hands again, whatever it says before it has heard that.
		or.void(checkDisplaced)
		return
	}
	or.fail(checkDisplaced, "node %d knows the sender of request %d no more, which asked %v before, and has places for %d",
		n.It(), oracle.Message(w.request), ago, cmp.Or(pd.Its(n).Cfg.PeersMax, 256))
}

// keeps reports whether a peer whose request is that old certainly still has its row.
func (or *displacedOracle) keeps(n *world.Node, c *asker, ago effects.Duration) bool {
	cfg := &pd.Its(n).Cfg
	others := 0
	for i := range or.at(n).askers {
		if x := &or.at(n).askers[i]; x.who != c.who && x.asked {
			others++
		}
	}
	return c.taken && !c.away && others+1 < int(cmp.Or(cfg.PeersMax, 256)) &&
		ago < cmp.Or(cfg.Tuning.SpokeFor, 60*effects.Second)
}

// known reports whether n certainly knows a peer as the one that sent a request before.
func (or *displacedOracle) known(n *world.Node, who effects.Incarnation) bool {
	if n.Lends || both(n) {
		return false
	}
	c := or.of(n, who)
	return or.keeps(n, c, or.w.Clock(n).Sub(c.heard))
}
