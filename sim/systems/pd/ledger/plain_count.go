package ledger

import (
	"cmp"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// Each connection of a plain sender counts as a separate peer with the quota of a peer. Therefore the number of these
// connections is bounded: no more connections have pages, or wait for pages.

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkPlains        = oracle.NewCheck("S18", "number of vanilla senders with pages")
	checkPlainsWait    = oracle.NewCheck("S18", "number of vanilla senders with pages, or with requests that wait")
	checkPlainsForm    = oracle.NewCheck("L3", "forms in which vanilla senders are refused")
	checkPlainsRefused = oracle.NewCheck("S18", "vanilla senders that are refused at once")
)

// plainCountOracle counts plain senders (S18).
type plainCountOracle struct {
	oracleBase
	perIncarnation[plainCountState]
	conns []uint64 `snap:"scratch"`
}

// plainCountState records the plain senders of an incarnation of a receiver.
type plainCountState struct {
	seen   []uint64     `snap:"skip"` // connections of plain senders that asked for pages
	grants []plainGrant `snap:"skip"` // grants under which plain senders may still have pages
}

func (s *plainCountState) clearForReuse() { s.grants, s.seen = s.grants[:0], s.seen[:0] }

// plainGrant is a grant to a plain sender.
type plainGrant struct {
	conn  uint64
	grant effects.GrantID
}

// verifyCount records a grant to a plain sender, and checks how many plain senders have pages, or have waited since
// before this step.
func (or *plainCountOracle) verifyCount(n *world.Node, conn uint64, id effects.GrantID) {
	or.removeEnded(n)
	state := or.stateOf(n)
	state.grants = append(state.grants, plainGrant{conn, id})
	or.countJudged(checkPlains)
	if count, limit := or.countConns(n, conn), plainsMax(n); count > limit {
		or.fail(checkPlains, "node %d serves %d vanilla senders at a time, %d are allowed", n.AsSubject(), count, limit)
	}
}

// verifyWaiting checks the number of plain senders after a step in which a request of one of them began to wait. A
// sender for whose request the node only waits must count as well as one that has pages.
func (or *plainCountOracle) verifyWaiting(n *world.Node) {
	pending := or.oracles().queue.stateOf(n).pending
	if len(pending) == 0 {
		return
	}
	w := &pending[len(pending)-1]
	if !w.isNew || w.peer != (effects.Incarnation{}) || w.keyCount == 0 || w.offerGrant != 0 {
		return
	}
	if n.Busy { // The node may still refuse the request.
		or.countVoid(checkPlainsWait)
		return
	}
	or.removeEnded(n)
	or.countJudged(checkPlainsWait)
	if count, limit := or.countConns(n, w.conn), plainsMax(n); count > limit {
		or.fail(checkPlainsWait, "node %d lets request %d wait beside those of %d vanilla senders, %d are allowed",
			n.AsSubject(), oracle.Message(w.request), count-1, limit)
	}
}

// plainsMax returns how many plain senders a node serves at a time.
func plainsMax(n *world.Node) int { return int(cmp.Or(pd.InfoOf(n).Cfg.Tuning.PlainsMax, 16)) }

// removeEnded removes the grants that allow no stores any more.
func (or *plainCountOracle) removeEnded(n *world.Node) {
	state := or.stateOf(n)
	state.grants = slices.DeleteFunc(state.grants, func(x plainGrant) bool {
		g := n.Grants[x.grant]
		return g == nil || !n.AllowsStores(g) || or.oracles().plainSenders.isExpired(n, x.grant)
	})
}

// countConns counts the connections of plain senders that have pages, or that wait since before this step, and the
// given one.
func (or *plainCountOracle) countConns(n *world.Node, conn uint64) int {
	state := or.stateOf(n)
	or.conns = append(or.conns[:0], conn)
	addConn := func(conn uint64) {
		if !slices.Contains(or.conns, conn) {
			or.conns = append(or.conns, conn)
		}
	}
	for _, x := range state.grants {
		addConn(x.conn)
	}
	for i := range or.oracles().queue.stateOf(n).pending {
		if o := &or.oracles().queue.stateOf(n).pending[i]; o.peer == (effects.Incarnation{}) && o.keyCount > 0 && o.offerGrant == 0 &&
			!o.isNew {
			addConn(o.conn)
		}
	}
	return len(or.conns)
}

// recordConn records that a plain sender asks for pages.
func (or *plainCountOracle) recordConn(n *world.Node, conn uint64) {
	if state := or.stateOf(n); !slices.Contains(state.seen, conn) {
		state.seen = append(state.seen, conn)
	}
}

// verifyRefused checks that a plain sender is not refused on arrival while fewer plain senders than allowed ever asked
// for pages. The reply gives no reason, so the check applies only if there is no other reason for a refusal.
func (or *plainCountOracle) verifyRefused(n *world.Node, w *pendingRequest) {
	cfg, r := &pd.InfoOf(n).Cfg, &or.w.Requests[w.request-1]
	if w.peer != (effects.Incarnation{}) || w.keyCount == 0 || w.offerGrant != 0 || !w.isNew || r.VanillaJob == 0 ||
		!or.facts().hasReply {
		return
	}
	queue, rows, bytes := or.oracles().queue.stateOf(n), 1, 2*w.bytesMax()
	for i := range queue.pending {
		o := &queue.pending[i]
		rows, bytes = rows+2, bytes+2*o.bytesMax()
	}
	limit := plainsMax(n)
	if !cfg.Bearer || n.Draining || or.w.Jobs[r.VanillaJob-1].AbandonedAt != 0 || w.keyCount > servablePages(n) ||
		len(or.stateOf(n).seen) > limit || rows > int(cfg.WaitersMax) || bytes > waitingBytes(n) {
		or.countVoid(checkPlainsRefused)
		return
	}
	if or.countJudged(checkPlainsRefused); !or.facts().reply.message.AllocFailed {
		return
	}
	or.fail(checkPlainsRefused, "node %d refuses request %d of a vanilla sender at once, and serves %d of %d such senders at most",
		n.AsSubject(), oracle.Message(w.request), len(or.stateOf(n).seen)-1, limit)
}

// verifyForm checks the form in which a vanilla sender is refused on arrival. An empty reply tells such a sender that the
// request can never be served; the reply of a failed allocation makes it try again.
func (or *plainCountOracle) verifyForm(n *world.Node, w *pendingRequest, body []byte) {
	r := &or.w.Requests[w.request-1]
	if w.peer != (effects.Incarnation{}) || w.keyCount == 0 || w.offerGrant != 0 || !w.isNew || r.VanillaJob == 0 {
		return
	}
	if !pd.InfoOf(n).Cfg.Bearer || n.Draining {
		or.countVoid(checkPlainsForm)
		return
	}
	switch limit := servablePages(n); {
	case w.keyCount > limit:
		if or.countJudged(checkPlainsForm); len(body) > 0 {
			or.fail(checkPlainsForm, "node %d answers request %d of a vanilla sender as if it may be served later; it has %d chunks, and %d fit",
				n.AsSubject(), oracle.Message(w.request), w.keyCount, limit)
		}
	case or.w.Setup.Mismatch || pd.IsUnreliable(or.w) || !or.facts().hasRequest:
		or.countVoid(checkPlainsForm)
	default:
		if or.countJudged(checkPlainsForm); len(body) == 0 {
			or.fail(checkPlainsForm, "node %d refuses request %d of a vanilla sender for ever; it has %d chunks, and %d fit",
				n.AsSubject(), oracle.Message(w.request), w.keyCount, limit)
		}
	}
}

// subscribe subscribes to nothing: other oracles call this one.
func (*plainCountOracle) subscribe(*oracle.Subscriptions[plainCountOracle]) {}
