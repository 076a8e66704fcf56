package ledger

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkServedOnce   = oracle.NewCheck("S23", "grants, one an operation")
	checkInTurn       = oracle.NewCheck("L7", "requests in turn")
	checkOvertaken    = oracle.NewCheck("L7", "requests passed by others")
	checkCommit       = oracle.NewCheck("S12", "commits of grants")
	checkCommitInTime = oracle.NewCheck("S24", "commits in time")
	checkAnswered     = oracle.NewCheck("L8", "requests that wait, in time")
	checkOfferBack    = oracle.NewCheck("L2", "offers taken back that wait")
	checkWaits        = oracle.NewCheck("L7", "requests that wait for free pages")
)

// queueOracle judges the allocation queue: which requests wait for pages, and in which order they are served (rule M9,
// L7), that each gets a reply in time (L8), and that commits are accepted only for grants in force (S12, S24).
type queueOracle struct {
	judge
	perLife[QueueLife]
}

func (*queueOracle) listen(l *oracle.Listen[queueOracle]) {
	oracle.On(l, func(o *queueOracle, _ *oracle.Call, e asked) {
		o.asked(e.node, e.request, e.channel, e.conn, e.body)
	})
	oracle.On(l, func(o *queueOracle, _ *oracle.Call, e world.Replying) { o.answered(e.Node, e.Request, e.Body) })
	oracle.On(l, func(o *queueOracle, _ *oracle.Call, e world.ConnLost) { o.askerLost(e.Node, e.Conn) })
	oracle.On(l, func(o *queueOracle, _ *oracle.Call, e world.TransferDone) {
		if e.Transfer.Read {
			o.readEnded(e.Node, e.Transfer)
		}
	})
	oracle.On(l, func(o *queueOracle, _ *oracle.Call, e world.Cancelling) { o.stopped(e.Node, e.Transfer) })
	oracle.On(l, func(o *queueOracle, _ *oracle.Call, e counted) { o.queues(e.node, e.stats) })
}

// QueueLife records the allocation queue of an incarnation of a node from the point of view of the oracles.
type QueueLife struct {
	waiters  []waiter // in the order of arrival
	granted  map[operation]effects.GrantID
	grant    effects.GrantID  // made in this step and not yet sent in a reply
	took     []effects.Page   `snap:"scratch"` // pages stored from a message since the last reply
	taken    []takenOperation `snap:"skip"`    // the last operation of each peer whose chunks came with the message
	newcomer uint64           // the request that arrived in this step and may have to wait
}

func (s *QueueLife) startReply() {
	*s = QueueLife{waiters: s.waiters[:0], granted: world.Emptied(s.granted), took: s.took[:0],
		taken: s.taken[:0]}
}

// waiter is a request that a receiver got and has not replied to yet.
type waiter struct {
	what      uint64              // a digest of the keys that are requested or offered, in order
	request   uint64              `snap:"request"`
	conn      uint64              `snap:"conn"` // the receiver's id of the connection
	peer      effects.Incarnation // zero: a plain sender, which is identified by its connection
	operation uint64              // zero: every attempt is an operation of its own
	keys      int
	pages     int             // the largest number of pages that the request can need: distinct keys
	due       int64           `snap:"instant"` // when the reply is due
	frozen    int64           // how long the node had been frozen when the message arrived
	atOnce    bool            // the reply is due in the same step
	layers    bool            // the message is about layers, which need pages for all of their chunks
	goesOn    bool            // some layers of the chunks arrived before, and their pages are promised
	names     [][]byte        // the keys of a plain sender, where plain senders are trusted
	body      []byte          // the message, if the request can wait
	fresh     bool            // the message arrived in this step
	turn      uint64          `snap:"skip"` // the turn in which the message arrived
	known     bool            `snap:"skip"` // the message names this incarnation by the name for the peer
	came      effects.Time    `snap:"skip"` // when the message arrived, by the receiver's clock
	severed   bool            // the link to the peer was lost after the message arrived
	offer     effects.GrantID // the sender's read lease, if the message offers pages
	pull      protocol.PullID `snap:"skip"` // the id of the offer
	back      bool            `snap:"skip"` // the offer was taken back
	reading   bool            // the offer has pages, and the chunks are being read
	stopped   bool            // the read was cancelled
	job       int             `snap:"skip"` // the job of the request, counted from 1
	unwanted  bool            // the request was abandoned during the read
	overtaken int             // grants to different classes while the request was the first of a class
	rivals    int             // the largest number of peers that had a request waiting at the same time
}

// with reports whether two waiters are of the same fairness class.
func (w *waiter) with(o *waiter) bool {
	return w.peer == o.peer && (w.peer != effects.Incarnation{} || w.conn == o.conn)
}

// operation identifies an operation of a peer. A retry has the same operation as the first attempt.
type operation struct {
	peer   effects.Incarnation
	number uint64
}

// asked records a message when the message reaches the receiver's machine.
func (or *queueOracle) asked(n *world.Node, request uint64, channel effects.Channel, conn uint64, body []byte) {
	w := waiter{request: request, conn: conn, frozen: n.Frozen, due: or.w.Now, atOnce: true, fresh: true}
	if channel == effects.ChannelAlloc {
		m, is := or.truth().asRequest(body)
		if !is {
			or.offerCame(n, w, body)
			return
		}
		w.turn = or.truth().turn
		or.all().pages.words(n)
		if len(m.Ext.Commit) > 0 {
			or.all().claimed.at(n).commits = effects.GrantID(m.Ext.Commit[0])
		}
		if m.HasExt {
			w.peer, w.operation = effects.Incarnation(m.Ext.Incarnation), m.Ext.Operation
			or.all().landed.called(n, w.peer, effects.Incarnation(m.Ext.To))
			or.all().places.speaks(n, w.peer, effects.Incarnation(m.Ext.To))
		}
		if w.keys = len(m.Keys); w.keys > 0 {
			if !m.HasExt && or.w.Setting.Leased && or.w.Plan.Rank.TrustUncommitted {
				for _, k := range m.Keys {
					w.names = append(w.names, append([]byte(nil), k...))
				}
			}
			w.atOnce = false
			w.due = or.w.Now + int64(n.Slowest(pd.Its(n).Cfg.AllocTimeout)+pd.Grace)
			w.pages = distinct(m.Keys)
			if w.layers = m.HasExt && m.Ext.Layers > 0; w.layers {
				w.goesOn, w.pages = m.Ext.Opened != 0, or.frames(m.Keys)*int(m.Ext.Layers)
			}
			w.body, w.what = or.w.Stock.Bytes.Keep(body), digest('a', m.Keys, m.Ext.Request, m.LastChunkTokens)
			or.joins(n, w, effects.Incarnation(m.Ext.To))
			return
		}
	}
	or.at(n).waiters = append(or.at(n).waiters, w)
}

// frames counts the chunks of which layers are named by the keys.
func (or *queueOracle) frames(keys [][]byte) int {
	var chunks []uint32
	for _, key := range keys {
		if k, ok := or.w.Keys.Number(key); ok {
			if first, _ := or.w.Plan.Layer(k); !slices.Contains(chunks, first) {
				chunks = append(chunks, first)
			}
		}
	}
	return len(chunks)
}

// digest returns a hash of a message's kind, the keys in order, the request that the keys belong to, and the length of
// the last chunk.
func digest(kind byte, keys [][]byte, request []byte, lastTokens uint32) uint64 {
	h := draw.Mix(uint64(kind)<<32|uint64(lastTokens), table.Hash(0, request))
	for _, k := range keys {
		h = table.Hash(h, k)
	}
	return h
}

// joins adds a request to the queue. A retry takes the place of the previous attempt, and the reply to the previous
// attempt becomes moot. A message is no retry if the message names different keys or another request, was meant for an
// earlier incarnation of the node, or comes from a stranger that does not know this incarnation's name for the peer.
func (or *queueOracle) joins(n *world.Node, w waiter, to effects.Incarnation) {
	my := or.at(n)
	w.known, w.came = pd.Believes(n, w.peer, to), or.w.Clock(n)
	for i := range my.waiters {
		o := &my.waiters[i]
		again := w.operation != 0 && o.peer == w.peer && o.operation == w.operation && (o.keys > 0 || o.reading)
		if again && pd.Believes(n, w.peer, to) && o.what == w.what {
			or.w.Requests[o.request-1].Moot = true
			o.request, o.conn, o.due, o.severed = w.request, w.conn, max(o.due, w.due), false
			return
		}
	}
	my.waiters = append(my.waiters, w)
	my.newcomer = w.request
}

// askerLost drops the requests of a connection after the receiver was notified that the connection is lost.
func (or *queueOracle) askerLost(n *world.Node, conn uint64) {
	my := or.at(n)
	my.waiters = slices.DeleteFunc(my.waiters, func(o waiter) bool {
		if o.conn == conn {
			or.w.Requests[o.request-1].Moot = true
		}
		return o.conn == conn && !o.reading
	})
	for i := range my.waiters {
		if o := &my.waiters[i]; o.conn == conn { // The read goes on, and the sender may retry.
			o.conn = 0
		}
	}
}

// grantAsks records that the node sends a grant of this step with a request, so that no reply carries the grant.
func (or *queueOracle) grantAsks(n *world.Node, id effects.GrantID) {
	if my := or.at(n); my.grant == id {
		my.grant = 0
	}
}

// answered takes a request out of the queue when the reply is sent, and checks that it was the request's turn.
func (or *queueOracle) answered(n *world.Node, request uint64, body []byte) {
	my := or.at(n)
	if or.w.Failure != nil {
		return
	}
	or.all().offers.refusing(n, &or.w.Requests[request-1], body)
	or.all().kept.keeping(n, request, body)
	or.all().renew.renewing(n, request, body)
	grant := my.grant
	my.grant = 0
	took := my.took
	my.took = my.took[:0]
	if grant != 0 {
		or.w.Requests[request-1].Grant = grant
		or.all().lease.promised(n, &or.w.Requests[request-1], n.Grants[grant])
		or.all().prompt.granting(n, n.Grants[grant])
		or.all().share.sharing(n, n.Grants[grant])
	}
	i := slices.IndexFunc(my.waiters, func(o waiter) bool { return o.request == request })
	if i < 0 {
		return // Example: a request that was refused because a stranger named its operation.
	}
	w := my.waiters[i]
	if grant != 0 {
		or.all().landed.crowds(n, n.Grants[grant], w.goesOn)
	}
	my.waiters = slices.Delete(my.waiters, i, i+1)
	or.truth().read(&w, body)
	or.all().hope.turnedDown(n, &w)
	or.all().prompt.refused(n, &w)
	or.all().places.answered(n, &w)
	or.all().claimed.answered(n, &w, grant, len(took) > 0)
	if len(took) > 0 {
		or.takes(n, &w)
		or.all().landed.took(n, took, w.peer)
		or.all().cache.used(n, took)
		or.all().cache.lostRaces(n, took)
		or.all().ends.granted(n, &w)
		or.inTurn(n, &w, i)
		if or.w.Failure == nil && !w.goesOn {
			or.overtaking(n, &w, i)
		}
		return
	}
	if grant == 0 && w.operation != 0 {
		g := n.Grants[my.granted[operation{w.peer, w.operation}]]
		switch {
		case g != nil:
			or.all().lease.promised(n, &or.w.Requests[request-1], g) // Sent again, with the remaining time.
			if or.truth().tells {
				or.all().prompt.again(n, g, &or.truth().reply.m)
				or.all().share.refusedAgain(n, &w, g)
			}
		case or.truth().tells:
			or.all().share.turnedAway(n, &w)
		}
	}
	if grant != 0 {
		or.all().ends.granted(n, &w)
		or.all().bearer.trusted(n, w.names)
		or.all().prompt.asked(n, n.Grants[grant])
		if w.peer == (effects.Incarnation{}) {
			or.all().plains.serves(n, w.conn, grant)
			or.all().landed.took(n, n.Grants[grant].Pages, w.whose())
		}
		or.served(n, &w, i, grant)
		return
	}
	m := &or.truth().reply.m
	if or.w.Setting.Leased && w.keys == 0 && or.truth().tells && m.HasExt {
		or.committed(n, m.Ext.Committed)
	}
}

// served checks the order in which grants are made (rule M9): first come, first served within a peer, and a bounded
// number of overtakes between peers (L7).
func (or *queueOracle) served(n *world.Node, w *waiter, place int, id effects.GrantID) {
	if w.goesOn {
		or.void(checkInTurn)
	} else if or.inTurn(n, w, place); or.w.Failure != nil {
		return
	}
	if w.operation != 0 {
		or.judged(checkServedOnce)
		op := operation{w.peer, w.operation}
		if g := n.Grants[or.at(n).granted[op]]; g != nil && n.Open(g) {
			or.fail(checkServedOnce,
				"node %d grants under grant %d what it granted for the same operation under grant %d, still in force",
				n.It(), n.ItsGrant(effects.GrantID(id)), n.ItsGrant(g.ID))
			return
		}
		or.at(n).granted[op] = id
	}
	if !w.goesOn {
		or.overtaking(n, w, place)
	}
}

// inTurn checks that no request of the same peer has waited longer than the request that is served (L7).
func (or *queueOracle) inTurn(n *world.Node, w *waiter, place int) {
	or.judged(checkInTurn)
	for i := range or.at(n).waiters[:place] {
		if o := &or.at(n).waiters[i]; o.with(w) && o.keys > 0 {
			or.fail(checkInTurn, "node %d serves request %d before request %d of the same peer, which waits longer",
				n.It(), oracle.Message(w.request), oracle.Message(o.request))
			return
		}
	}
}

// committed checks which commits of a sender the receiver accepted: none that arrived after the grant was over (S24). A
// repeated commit may be accepted again.
func (or *queueOracle) committed(n *world.Node, ids []uint64) {
	for _, id := range ids {
		or.judged(checkCommit, checkCommitInTime)
		g := n.Grants[effects.GrantID(id)]
		switch {
		case g == nil:
			or.fail(checkCommit, "node %d takes the commit of grant %d, which it never gave",
				n.It(), n.ItsGrant(effects.GrantID(id)))
		case !g.Committed && (g.Revoking || or.w.Clock(n) > g.Ends):
			or.fail(checkCommitInTime, "node %d takes the commit of grant %d, which had ended",
				n.It(), n.ItsGrant(effects.GrantID(id)))
		default:
			if !g.Committed {
				or.all().claimed.landed(n, g.ID, nil, true)
			}
			g.Committed = true
		}
	}
}

// queues checks, after a step, that no request waits without need or longer than allowed.
func (or *queueOracle) queues(n *world.Node, s *rank.Stats) {
	my := or.at(n)
	my.grant = 0
	if or.all().share.waits(n, s); or.w.Failure != nil {
		return
	}
	if or.goneBack(n); or.w.Failure != nil {
		return
	}
	for i := range my.waiters {
		o := &my.waiters[i]
		if o.reading && (o.conn == 0 || o.stopped) {
			or.void(checkAnswered)
			continue // No sender waits for the reply, or the plane is to end the read.
		}
		if or.judged(checkAnswered); o.atOnce || o.due+n.Frozen-o.frozen < or.w.Now {
			or.fail(checkAnswered, "node %d does not answer request %d in time", n.It(), oracle.Message(o.request))
			return
		}
	}
	if or.waitInVain(n, s); or.w.Failure != nil {
		return
	}
	for i := range my.waiters {
		my.waiters[i].fresh = false
	}
}
