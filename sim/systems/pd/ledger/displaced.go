package ledger

import (
	"cmp"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// Anybody can say hello in one name after the other. A peer that has asked for something keeps its place for a while
// beside those: it is pushed out by peers that asked, too, and only where there are more of them than places.

var checkDisplaced = oracle.NewCheck("S18", "peers that asked and keep their place")

// displacedOracle judges who is no longer known.
type displacedOracle struct {
	judge
	perLife[displacedLife]
}

func (*displacedOracle) listen(l *oracle.Listen[displacedOracle]) {
	oracle.On(l, func(o *displacedOracle, _ *oracle.Call, e world.LinkLost) { o.lost(e.Node, e.Peer) })
}

// displacedLife are the names in which a life of a receiver was asked.
type displacedLife struct {
	askers []asker `snap:"skip"` // all that a refusal depends on is in the waiters, too, but for how long ago it was
}

// asker is one of them.
type asker struct {
	who   effects.Incarnation
	heard effects.Time // its newest request, by the receiver's clock
	asked bool         // there was one
	taken bool         // one was not refused as a stranger's
	away  bool         // its link was lost since
}

func (s *displacedLife) empty() { s.askers = s.askers[:0] }

// of is what is known of a name.
func (or *displacedOracle) of(n *world.Node, who effects.Incarnation) *asker {
	my := or.at(n)
	i := slices.IndexFunc(my.askers, func(c asker) bool { return c.who == who })
	if i < 0 {
		i = len(my.askers)
		my.askers = append(my.askers, asker{who: who})
	}
	return &my.askers[i]
}

// speaks notes that somebody spoke in a name, to a node in another one. If n knows it so, it competes for the places
// from now on, whatever it said. Example: three strangers say hello, and each that a request has ended.
func (or *displacedOracle) speaks(n *world.Node, who, to effects.Incarnation) {
	if who != (effects.Incarnation{}) && pd.Believes(n, who, to) {
		or.of(n, who).asked = true
	}
}

// lost notes that a peer's link is lost: it has to shake hands again, and what waits here of it is refused.
func (or *displacedOracle) lost(n *world.Node, who effects.Incarnation) {
	or.of(n, who).away = true
	waiters := or.all().queue.at(n).waiters
	for i := range waiters {
		waiters[i].severed = waiters[i].severed || waiters[i].peer == who
	}
}

// answered checks the answer to a request that came in a name that n knows, if it does. Who asks on other ports of n,
// for what it has or for more time, has a place, too, and is not counted here: such nodes are not judged.
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
		// The answer to a request from before the loss says nothing of the peer now. Example: of two requests that wait,
		// one is answered as abandoned before the sweep after the loss comes to the other.
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

// keeps reports whether a peer that asked so long ago certainly has its place.
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

// known reports whether n certainly knows a peer as the one that asked before.
func (or *displacedOracle) known(n *world.Node, who effects.Incarnation) bool {
	if n.Lends || both(n) {
		return false
	}
	c := or.of(n, who)
	return or.keeps(n, c, or.w.Clock(n).Sub(c.heard))
}
