package sim

import (
	"encoding/binary"
	"hash/fnv"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/sim/oracle"
)

// What is judged here.
var (
	checkServedOnce   = newCheck("S23", "grants, one an operation")
	checkInTurn       = newCheck("L7", "requests in turn")
	checkOvertaken    = newCheck("L7", "requests passed by others")
	checkCommit       = newCheck("S12", "commits of grants")
	checkCommitInTime = newCheck("S24", "commits in time")
	checkAnswered     = newCheck("L8", "requests that wait, in time")
	checkWaits        = newCheck("L7", "requests that wait for free pages")
	checkWokenDrain   = newCheck("L6", "gets in a drain")
	checkWoken        = newCheck("L8", "gets whose chunks are ready")
)

// A waiter is a message that a receiver got and has not answered yet.
type waiter struct {
	what      uint64              // which keys it asks for pages for, or offers, in order
	request   uint64              `snap:"request"`
	conn      uint64              `snap:"conn"` // as the receiver calls it
	peer      effects.Incarnation // zero: a plain sender, who is known by its connection
	operation uint64              // zero: every attempt is its own
	keys      int
	pages     int             // the most it can need: keys that differ
	due       int64           `snap:"instant"` // when it must have been answered
	frozen    int64           // how long the node had been frozen when it came
	atOnce    bool            // nothing about it can wait
	names     [][]byte        // of a plain sender's keys, where that is trusted
	body      []byte          // itself, if it can wait
	fresh     bool            // it came in this step
	offer     effects.GrantID // of its sender, for one that offers its pages
	reading   bool            // and has got pages to read them into
	stopped   bool            // whose end was asked for
	overtaken int             // grants that went past it while it was the first of its class
	rivals    int             // the most peers of whom somebody waited with it
}

// with says whether both are of one class.
func (w *waiter) with(o *waiter) bool {
	return w.peer == o.peer && (w.peer != effects.Incarnation{} || w.conn == o.conn)
}

// An operation is what a retry has in common with the attempt before it.
type operation struct {
	peer   effects.Incarnation
	number uint64
}

// queue is what the ledger keeps of one life's control channels.
type queueSeen struct {
	waiters []waiter // in the order in which they came
	granted map[operation]effects.GrantID
	grant   effects.GrantID  // made in this step and not yet told
	gets    []effects.Ticket // given to the machine, their Deliver not seen
	ready   bool             // in this step a chunk became readable
	lost    []uint32         // keys of which something was lost in this step that they were to come of
	dimmed  bool             // anything was
	refused effects.Code     // what the machine says of a request that it is about to refuse
	crowded int64            `snap:"skip"` // when its table of claims was last almost full

	newcomer uint64 // the request that came in this step and may have to wait

	reserves  []effects.Ticket `snap:"skip"` // those that engines gave, but for some that are over
	full      []fullSeen       // by the receiver's node; empty before the first
	absent    []absentSeen     `snap:"skip"` // likewise
	puts      []effects.Ticket // given to a sender that offers its chunks, but for some that are over
	fetches   []effects.Ticket // given to the machine, but for some that are over
	kept      []keptOffer      // that it keeps, but for some that are over
	callers   []caller         `snap:"skip"`
	here      []bool           `snap:"scratch"` // of the chunks that this step's Contains asks for
	came      cameOffer        `snap:"scratch"` // in this step
	lapsing   lapsing
	imports   []importSeen          // under way
	unreached []effects.Incarnation // senders that could not be read from at some time
	short     []effects.Ticket      // likewise, to one that offloads, but for some whose chunks were copied
	over      []*grant              // to read, of which the machine is told in this step that they are
}

// emptied is what the ledger knows of a life that begins, in the same memory.
func (q *queueSeen) emptied() queueSeen {
	return queueSeen{
		waiters: q.waiters[:0], granted: emptied(q.granted), gets: q.gets[:0], lost: q.lost[:0], reserves: q.reserves[:0],
		full: q.full[:0], puts: q.puts[:0], short: q.short[:0], over: q.over[:0], lapsing: q.lapsing.emptied(),
		fetches: q.fetches[:0], kept: q.kept[:0], unreached: q.unreached[:0], imports: q.imports[:0], callers: q.callers[:0],
		absent: q.absent[:0],
	}
}

// asked notes a message as it reaches its receiver's machine.
func (l *ledger) asked(n *node, request uint64, channel effects.Channel, conn uint64, body []byte) {
	w := waiter{request: request, conn: conn, frozen: n.frozen, due: l.w.now, atOnce: true, fresh: true}
	m := &l.request
	if channel == effects.ChannelAlloc && m.Decode(body, &wireLimits) != nil {
		l.offerCame(n, w, body)
		return
	}
	if channel == effects.ChannelAlloc {
		l.words(n)
		if m.HasExt {
			w.peer, w.operation = effects.Incarnation(m.Ext.Incarnation), m.Ext.Operation
			l.called(n, w.peer, effects.Incarnation(m.Ext.To))
		}
		if w.keys = len(m.Keys); w.keys > 0 {
			if !m.HasExt && l.w.plan.Leased && l.w.plan.Rank.TrustUncommitted {
				for _, k := range m.Keys {
					w.names = append(w.names, append([]byte(nil), k...))
				}
			}
			w.atOnce = false
			w.due = l.w.now + int64(n.slowest(n.cfg.AllocTimeout)+grace)
			w.pages = distinct(m.Keys)
			w.body, w.what = l.w.stock.bytes.keep(body), digest('a', m.Keys, m.Ext.Request, m.LastChunkTokens)
			l.joins(n, w, effects.Incarnation(m.Ext.To))
			return
		}
	}
	n.seen.waiters = append(n.seen.waiters, w)
}

// digest tells messages of a kind apart by their keys, in order, whose they are, and how long the last one is.
func digest(kind byte, keys [][]byte, request []byte, lastTokens uint32) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(binary.LittleEndian.AppendUint32([]byte{kind}, lastTokens))
	_, _ = h.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(request))))
	_, _ = h.Write(request)
	for _, k := range keys {
		_, _ = h.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(k))))
		_, _ = h.Write(k)
	}
	return h.Sum64()
}

// joins lets one wait. A retry takes the place of the attempt before it, whose answer is moot. What names other keys or
// another request is none, nor is what was meant for a former life, nor what a stranger says who does not know the name
// that this life has for the peer.
func (l *ledger) joins(n *node, w waiter, to effects.Incarnation) {
	for i := range n.seen.waiters {
		o := &n.seen.waiters[i]
		again := w.operation != 0 && o.peer == w.peer && o.operation == w.operation && (o.keys > 0 || o.reading)
		if again && n.believes(w.peer, to) && o.what == w.what {
			l.w.requests[o.request-1].moot = true
			o.request, o.conn, o.due = w.request, w.conn, max(o.due, w.due)
			return
		}
	}
	n.seen.waiters = append(n.seen.waiters, w)
	n.seen.newcomer = w.request
}

// askerLost forgets whom the receiver was told to be gone.
func (l *ledger) askerLost(n *node, conn uint64) {
	n.seen.waiters = slices.DeleteFunc(n.seen.waiters, func(o waiter) bool {
		if o.conn == conn {
			l.w.requests[o.request-1].moot = true
		}
		return o.conn == conn && !o.reading
	})
	for i := range n.seen.waiters {
		if o := &n.seen.waiters[i]; o.conn == conn { // What is read is read, and its sender may ask again.
			o.conn = 0
		}
	}
}

// answered takes a waiter out of the queue and checks that it was his turn.
func (l *ledger) answered(n *node, request uint64, body []byte) {
	if l.w.failure != nil {
		return
	}
	l.refusing(n, &l.w.requests[request-1], body)
	l.keeping(n, request, body)
	l.renewing(n, body)
	grant := n.seen.grant
	n.seen.grant = 0
	if grant != 0 {
		l.w.requests[request-1].grant = grant
		l.promised(n, &l.w.requests[request-1], n.grants[grant])
	}
	i := slices.IndexFunc(n.seen.waiters, func(o waiter) bool { return o.request == request })
	if i < 0 {
		return // Such as one whose operation a stranger named and was refused for.
	}
	w := n.seen.waiters[i]
	n.seen.waiters = slices.Delete(n.seen.waiters, i, i+1)
	l.turnedDown(n, &w)
	if g := n.grants[n.seen.granted[operation{w.peer, w.operation}]]; grant == 0 && w.operation != 0 && g != nil {
		l.promised(n, &l.w.requests[request-1], g) // Told again, with what remains.
		if l.reply.Decode(body, &wireLimits) == nil {
			l.refusedAgain(n, &w, g)
		}
	} else if grant == 0 && w.operation != 0 && l.reply.Decode(body, &wireLimits) == nil {
		l.turnedAway(n, &w)
	}
	if grant != 0 {
		l.trusted(n, w.names)
		l.served(n, &w, i, grant)
		return
	}
	m := &l.reply
	if l.w.plan.Leased && w.keys == 0 && m.Decode(body, &wireLimits) == nil && m.HasExt {
		l.committed(n, m.Ext.Committed)
	}
}

// served checks the order in which grants are made, rule M9: first come, first served
// within a peer, and a bounded number of overtakes between peers (L7).
func (l *ledger) served(n *node, w *waiter, place int, id effects.GrantID) {
	if l.inTurn(n, w, place); l.w.failure != nil {
		return
	}
	if w.operation != 0 {
		l.judged(checkServedOnce)
		op := operation{w.peer, w.operation}
		if g := n.grants[n.seen.granted[op]]; g != nil && n.open(g) {
			l.fail(checkServedOnce,
				"node %d grants under grant %d what it granted for the same operation under grant %d, still in force",
				n.it(), n.itsGrant(effects.GrantID(id)), n.itsGrant(g.id))
			return
		}
		n.seen.granted[op] = id
	}
	l.overtaking(n, w, place)
}

// inTurn checks that nobody of the same peer waits longer than who is served.
func (l *ledger) inTurn(n *node, w *waiter, place int) {
	l.judged(checkInTurn)
	for i := range n.seen.waiters[:place] {
		if o := &n.seen.waiters[i]; o.with(w) && o.keys > 0 {
			l.fail(checkInTurn, "node %d serves request %d before request %d of the same peer, which waits longer",
				n.it(), oracle.Message(w.request), oracle.Message(o.request))
			return
		}
	}
}

// overtaking counts who is passed by one that is served.
func (l *ledger) overtaking(n *node, w *waiter, place int) {
	s := n.stats()
	for i := range n.seen.waiters[:place] {
		o := &n.seen.waiters[i]
		if o.with(w) || !l.first(n, i) {
			continue
		}
		if !o.linked(n) || n.taken(&s)+o.pages > n.share() || n.manyGrants(&s) {
			l.void(checkOvertaken)
			continue
		}
		l.judged(checkOvertaken)
		// Of each other peer one that was passed as often may go first.
		o.rivals = max(o.rivals, l.heads(n))
		if o.overtaken++; o.overtaken > int(n.cfg.OvertakesMax)+o.rivals {
			l.fail(checkOvertaken, "node %d lets request %d wait although %d grants went past it; %d are allowed",
				n.it(), oracle.Message(o.request), o.overtaken, n.cfg.OvertakesMax)
			return
		}
	}
}

// heads counts the peers of whom somebody waits.
func (l *ledger) heads(n *node) (count int) {
	for i := range n.seen.waiters {
		if l.first(n, i) {
			count++
		}
	}
	return count
}

// distinct counts keys that differ.
func distinct(keys [][]byte) (n int) {
	for i, k := range keys {
		if !slices.ContainsFunc(keys[:i], func(o []byte) bool { return string(o) == string(k) }) {
			n++
		}
	}
	return n
}

// first says whether a waiter is the first of its class.
func (l *ledger) first(n *node, i int) bool {
	w := &n.seen.waiters[i]
	for k := range n.seen.waiters[:i] {
		if o := &n.seen.waiters[k]; o.keys > 0 && o.with(w) {
			return false
		}
	}
	return w.keys > 0
}

// open says whether the grant can still be written under.
func (n *node) open(g *grant) bool {
	if g.gone || g.revoking {
		return false
	}
	for _, p := range g.pages {
		if n.pool.pages[p.Index].granted == g.id {
			return true
		}
	}
	return false
}

// share is how many pages one class may have granted or in quarantine.
func (n *node) share() int { return max(1, int(n.cfg.Pages)*int(n.cfg.PeerSharePct)/100) }

// manyGrants says that a class may have its share of grants: no more than it leaves, which it has not before half of the table is taken.
func (n *node) manyGrants(s *rank.Stats) bool { return 2*s.Grants >= int(n.cfg.GrantsMax) }

// committed checks which words of a sender the receiver believed: never one that came
// after the grant was over (S24). Said twice, it may be believed twice.
func (l *ledger) committed(n *node, ids []uint64) {
	for _, id := range ids {
		l.judged(checkCommit, checkCommitInTime)
		g := n.grants[effects.GrantID(id)]
		switch {
		case g == nil:
			l.fail(checkCommit, "node %d takes the commit of grant %d, which it never gave",
				n.it(), n.itsGrant(effects.GrantID(id)))
		case !g.committed && (g.revoking || l.w.clock(n) > g.ends):
			l.fail(checkCommitInTime, "node %d takes the commit of grant %d, which had ended",
				n.it(), n.itsGrant(effects.GrantID(id)))
		default:
			g.committed = true
		}
	}
}

// queues checks, after a step, that nobody waits without need.
func (l *ledger) queues(n *node, s *rank.Stats) {
	q := &n.seen
	q.grant = 0
	if l.waits(n, s); l.w.failure != nil {
		return
	}
	for i := range q.waiters {
		o := &q.waiters[i]
		if o.reading && (o.conn == 0 || o.stopped) {
			l.void(checkAnswered)
			continue // Nobody waits for it, or its plane is to end the read.
		}
		if l.judged(checkAnswered); o.atOnce || o.due+n.frozen-o.frozen < l.w.now {
			l.fail(checkAnswered, "node %d does not answer request %d in time", n.it(), oracle.Message(o.request))
			return
		}
	}
	if !n.draining && l.waitInVain(n, s) {
		l.fail(checkWaits, "node %d has %d pages free and lets request %d wait for %d",
			n.it(), s.PagesFree, oracle.Message(q.waiters[0].request), q.waiters[0].pages)
		return
	}
	l.hopeless(n)
	l.woken(n)
	q.dimmed, q.refused = false, effects.OK
	for i := range q.waiters {
		q.waiters[i].fresh = false
	}
}

// waitInVain says whether all that are the first of their class could be served with what is free. Where one could not,
// he may be passed too often already, and have the free pages kept for him.
func (l *ledger) waitInVain(n *node, s *rank.Stats) (all bool) {
	for i := range n.seen.waiters {
		o := &n.seen.waiters[i]
		if !l.first(n, i) || !o.linked(n) {
			continue
		}
		if o.pages > s.PagesFree {
			l.judged(checkWaits)
			return false
		}
		if n.taken(s)+o.pages > n.share() || n.manyGrants(s) || s.Entries+o.keys > s.PagesTotal {
			l.void(checkWaits)
			return false
		}
		l.judged(checkWaits)
		all = true
	}
	return all
}

// woken checks that a Get is delivered in the step that makes the last of its chunks
// readable, and that a drain leaves none behind.
func (l *ledger) woken(n *node) {
	q := &n.seen
	if !q.ready && !n.draining || len(q.gets) == 0 {
		q.ready = false
		return
	}
	q.ready = false
	q.gets = slices.DeleteFunc(q.gets, func(t effects.Ticket) bool { return l.w.commands[t-1].over })
	if n.draining {
		l.judged(checkWokenDrain)
	}
	for _, t := range q.gets {
		if n.draining {
			l.fail(checkWokenDrain, "node %d drains and lets ticket %d (get) wait", n.it(), oracle.Ticket(t))
			return
		}
		j := &l.w.jobs[l.w.commands[t-1].job]
		l.judged(checkWoken)
		ready := 0
		for _, k := range j.keys {
			if _, ok := n.ready(k); ok {
				ready++
			}
		}
		if ready == len(j.keys) {
			l.fail(checkWoken, "node %d lets ticket %d (get) wait although all of its %d chunks are ready",
				n.it(), oracle.Ticket(t), ready)
			return
		}
	}
}
