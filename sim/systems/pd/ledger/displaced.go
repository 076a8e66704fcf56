package ledger

import (
	"cmp"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// Any process can shake hands under many names in sequence. Such handshakes must not displace a peer that has sent a
// request from the receiver's table: for a time, only peers that also sent requests can displace that peer, and only if
// there are more such peers than rows.

var checkDisplaced = oracle.NewCheck("S18", "peers that asked and keep their place")

// displacedOracle judges which peers a receiver no longer knows.
type displacedOracle struct {
	judge
	perLife[displacedLife]
}

func (*displacedOracle) listen(l *oracle.Listen[displacedOracle]) {
	oracle.On(l, func(o *displacedOracle, _ *oracle.Call, e world.LinkLost) { o.lost(e.Node, e.Peer) })
}

// displacedLife records the names under which an incarnation of a receiver got requests.
type displacedLife struct {
	askers []asker `snap:"skip"` // not hashed: the state of the queue implies all but the age of the requests
}

// asker records the requests that were sent under a name.
type asker struct {
	who   effects.Incarnation
	heard effects.Time // time of the newest request, by the receiver's clock
	asked bool         // a message of a peer that n knows has arrived
	taken bool         // a request was accepted as a known peer's
	away  bool         // the link was lost since
}

func (s *displacedLife) startReply() { s.askers = s.askers[:0] }

// of returns the record of a name. It creates the record if there is none.
func (or *displacedOracle) of(n *world.Node, who effects.Incarnation) *asker {
	my := or.at(n)
	i := slices.IndexFunc(my.askers, func(c asker) bool { return c.who == who })
	if i < 0 {
		i = len(my.askers)
		my.askers = append(my.askers, asker{who: who})
	}
	return &my.askers[i]
}

// speaks records a message, with the name of the sender and the name by which the message addresses n. If n knows the
// peer by these names, the peer competes for the rows from now on, whatever the kind of the message. Example: three
// strangers shake hands, and each sends an end-of-request message.
func (or *displacedOracle) speaks(n *world.Node, who, to effects.Incarnation) {
	if who != (effects.Incarnation{}) && pd.Believes(n, who, to) {
		or.of(n, who).asked = true
	}
}

// lost records that a peer's link is lost: the peer has to shake hands again, and the peer's waiting requests are
// refused.
func (or *displacedOracle) lost(n *world.Node, who effects.Incarnation) {
	or.of(n, who).away = true
	waiters := or.all().queue.at(n).waiters
	for i := range waiters {
		waiters[i].severed = waiters[i].severed || waiters[i].peer == who
	}
}

// answered checks the reply to a request under a name that n knows. Peers that send requests for chunks or renewals use
// different ports of n and have rows, too. The oracle does not count these peers, so nodes with such ports are not
// judged.
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
		// The reply to a request from before the loss says nothing about the peer's row now. Example: two requests wait
		// when the link is lost. The first gets a reply because its request was abandoned, before the sweep that
		// follows the loss refuses the second.
		c.away = c.away && w.severed
		return
	}
	if w.severed || !or.keeps(n, c, ago) {
		c.taken = false // The peer has to shake hands again. Messages that the peer sends before it learns that are refused, too.
		or.void(checkDisplaced)
		return
	}
	or.fail(checkDisplaced, "node %d knows the sender of request %d no more, which asked %v before, and has places for %d",
		n.It(), oracle.Message(w.request), ago, cmp.Or(pd.Its(n).Cfg.PeersMax, 256))
}

// keeps reports whether a peer certainly still has a row if the peer's newest request is so long ago.
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

// known reports whether n certainly still has a row for a peer that sent a request before.
func (or *displacedOracle) known(n *world.Node, who effects.Incarnation) bool {
	if n.Lends || both(n) {
		return false
	}
	c := or.of(n, who)
	return or.keeps(n, c, or.w.Clock(n).Sub(c.heard))
}
