package sim

import (
	"bytes"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
)

// What is judged here.
var (
	checkKeeps          = newCheck("S9", "offers as they are kept")
	checkContains       = newCheck("S9", "answers to contains")
	checkPlacesPromised = newCheck("S9", "places that were promised")
	checkPlacesStanding = newCheck("L2", "places that can be read")
	checkEndEarly       = newCheck("S9", "ends told of kept offers")
	checkEndTwice       = newCheck("S8", "ends told of offers, once each")
)

// A keptOffer is an offer that a receiver said it keeps. Its chunks can be read from then on: for as long as was
// promised if nothing happens to its sender, and never once the offer has ended.
type keptOffer struct {
	loan   *grant
	owner  *pool
	peer   effects.Incarnation
	pull   protocol.PullID
	job    int // that it is for; -1 when it told none
	chunks []keptChunk
	at     int64        `snap:"instant"`
	until  effects.Time // for so long it must be kept, by the receiver's clock
	lies   bool         // it is not what its sender sent: what is kept of it nobody can say
	shaky  bool         // something happened by which it may have ended
	over   bool         // it has ended
}

type keptChunk struct {
	id      uint32
	index   int64 // in the offer
	perhaps bool  // it may have been consumed
	left    bool  // it was
}

// cameOffer is the message that a receiver is given in this step, if it is of a sender that offers.
type cameOffer struct {
	request   uint64
	keeps     keptOffer
	withdrawn []protocol.PullID
}

// offerAt reads such a message as it reaches its machine.
func (l *ledger) offerAt(n *node, request uint64, body []byte) {
	n.seen.came = cameOffer{}
	m := &l.offer
	if !n.receives() || m.Decode(body, &wireLimits) != nil || !m.HasExt {
		return
	}
	owner := (*pool)(nil)
	if len(m.Keys) > 0 && len(m.SenderUUIDs) > 0 {
		owner = l.buffers[effects.BufferID(m.SenderUUIDs[0])]
	}
	var g *grant
	if owner != nil {
		g = owner.loan(effects.GrantID(m.Ext.Grant))
	}
	if g != nil {
		g.loan.came++
		l.offeredMeets(n, owner.node, g)
	}
	if !n.delays {
		return
	}
	x := &n.seen.came
	x.request, x.keeps.peer, x.keeps.pull, x.keeps.job = request, effects.Incarnation(m.Ext.Incarnation), m.PullID, -1
	if len(m.Ext.Request) > 0 {
		x.keeps.job = int(l.w.jobNamed(m.Ext.Request))
	}
	for _, pull := range m.Ext.Withdraw {
		x.withdrawn = append(x.withdrawn, pull)
		for i := range n.seen.kept {
			k := &n.seen.kept[i]
			if k.pull == pull && k.peer == x.keeps.peer && n.believes(k.peer, effects.Incarnation(m.Ext.To)) {
				k.shaky = true
				l.excuse(n, effects.Cancelled, k.ids()...)
			}
		}
	}
	if owner == nil {
		return
	}
	x.keeps.loan, x.keeps.owner = g, owner
	x.keeps.lies = g == nil || !n.is(g.peer) || g.loan.pull != m.PullID || len(g.pages) != len(m.Keys)
	for i, key := range m.Keys {
		id := uint32(0)
		if x.keeps.lies = x.keeps.lies || uint64(g.pages[i].Index) != uint64(m.SenderIndexes[i]); !x.keeps.lies {
			id = g.loan.held[i].key()
			x.keeps.lies = !bytes.Equal(l.keys[id], key)
		}
		if !slices.ContainsFunc(m.Keys[:i], func(k []byte) bool { return bytes.Equal(k, key) }) {
			x.keeps.chunks = append(x.keeps.chunks, keptChunk{id: id, index: int64(i)})
		}
	}
}

// keeping notes what a receiver answers to such a message.
func (l *ledger) keeping(n *node, request uint64, body []byte) {
	x := &n.seen.came
	m := &l.ack
	if x.request != request || request == 0 || m.Decode(body, &wireLimits) != nil || !m.HasExt {
		return
	}
	if m.Ext.Code == 0 && !m.AllocFailed {
		for i := range n.seen.kept {
			if k := &n.seen.kept[i]; k.peer == x.keeps.peer && slices.Contains(x.withdrawn, k.pull) {
				k.over = true
			}
		}
	}
	k := x.keeps
	if !m.Ext.Delayed || m.Ext.Code != 0 || m.AllocFailed || // A refusal may say that a read is still under way; it keeps nothing.
		slices.ContainsFunc(n.seen.kept, func(o keptOffer) bool { return o.loan == k.loan && o.pull == k.pull && !o.over }) {
		return
	}
	if !k.lies && k.loan.loan.kept && l.stillRead(n, &k) {
		return // A retry: its answer is what the first attempt began, and is true as long as anybody reads of that.
	}
	k.chunks = slices.DeleteFunc(k.chunks, func(c keptChunk) bool { return slices.Contains(m.AlreadySent, c.index) })
	k.at, k.until = l.w.now, l.w.clock(n).Add(n.cfg.LeadMin)
	if !k.lies {
		l.judged(checkKeeps)
		if left := l.w.clock(k.owner.node).Sub(k.loan.ends) + n.cfg.LeadMin; left > 0 {
			l.fail(checkKeeps,
				"node %d keeps the offer of grant %d although its lease is %d ns shorter than the least that is kept",
				n.it(), n.itsGrant(k.loan.id), left)
		}
		k.loan.loan.kept = true
		for _, c := range k.chunks {
			l.stored[n.id][c.id] = true
		}
	}
	k.shaky = slices.Contains(n.seen.unreached, k.peer)
	n.seen.kept = append(n.seen.kept, k)
	l.keepsShare(n, &k)
}

// stillRead says whether a fetch may still read of an offer that it took all chunks out of: one that goes on, or one
// that has ended before its reads.
func (l *ledger) stillRead(n *node, k *keptOffer) bool {
	return slices.ContainsFunc(l.w.going.commands.some, func(ticket effects.Ticket) bool {
		c := &l.w.commands[ticket-1]
		return c.want == wantFetch && c.node == n.id && c.life == n.life && !c.over
	}) || slices.ContainsFunc(l.w.going.transfers.some, func(t *transfer) bool {
		return t.read && t.reading && t.local == n.pool && t.remote == k.owner && t.grant == k.loan.id
	})
}

func (k *keptOffer) ids() (all []uint32) {
	for i := range k.chunks {
		all = append(all, k.chunks[i].id)
	}
	return all
}

// stands says whether an offer can still be kept: nobody ended it, nor did its time.
func (l *ledger) stands(k *keptOffer) bool {
	return !k.over && (k.lies || l.w.clock(k.owner.node) <= k.loan.ends)
}

// sure says whether an offer must still be kept.
func (l *ledger) sure(n *node, k *keptOffer) bool {
	return l.stands(k) && !k.lies && !k.shaky && l.w.clock(n) <= k.until
}

// promisedHere says whether a chunk must be among those that are kept.
func (l *ledger) promisedHere(n *node, id uint32) bool {
	return slices.ContainsFunc(n.seen.kept, func(k keptOffer) bool {
		return l.sure(n, &k) && slices.ContainsFunc(k.chunks, func(c keptChunk) bool { return c.id == id && !c.perhaps })
	})
}

// aged says whether one of some chunks was kept for so long that its lease may be over.
func (l *ledger) aged(n *node, ids []uint32) bool {
	return slices.ContainsFunc(n.seen.kept, func(k keptOffer) bool {
		return (k.lies || l.w.clock(n) > k.until) && slices.ContainsFunc(k.chunks, func(c keptChunk) bool { return k.lies || slices.Contains(ids, c.id) })
	})
}

// reached says whether the planes of all senders that may have one of some chunks are connected.
func (l *ledger) reached(n *node, ids []uint32) bool {
	return !slices.ContainsFunc(n.seen.kept, func(k keptOffer) bool {
		return l.stands(&k) && (k.lies || slices.ContainsFunc(k.chunks, func(c keptChunk) bool { return slices.Contains(ids, c.id) })) &&
			!slices.ContainsFunc(n.links, func(x *link) bool { return x.peer == k.peer && x.given && !x.told && !x.dropped })
	})
}

// left notes which chunks leave their offers with a fetch that had begun: those that were offered for its request.
func (l *ledger) left(n *node, c *command) {
	for i := range n.seen.kept {
		k := &n.seen.kept[i]
		if k.job >= 0 && k.job != c.job {
			continue
		}
		for m := range k.chunks {
			if x := &k.chunks[m]; slices.Contains(l.wanted(c), x.id) {
				x.perhaps = true
				x.left = x.left || k.job == c.job && k.at < c.asked.at
			}
		}
	}
}

// abandoned ends what is kept for a request, as its machine is told.
func (l *ledger) abandoned(n *node, job int) {
	for i := range n.seen.kept {
		if k := &n.seen.kept[i]; k.job == job {
			k.over = true
		}
	}
	// Its own fetches end. What others read of it goes on (S18).
	for _, t := range n.seen.fetches {
		if c := &l.w.commands[t-1]; c.job == job {
			c.asked.excuse |= 1 << effects.Cancelled
		}
	}
}

// outOfReach notes that a sender cannot be read from, and why: what is kept of it may end, and who reads it fail.
func (l *ledger) outOfReach(n *node, peer effects.Incarnation, code effects.Code) {
	if !n.delays {
		return
	}
	if !slices.Contains(n.seen.unreached, peer) {
		n.seen.unreached = append(n.seen.unreached, peer)
	}
	for i := range n.seen.kept {
		if k := &n.seen.kept[i]; k.peer == peer {
			k.shaky = true
			l.excuse(n, code, k.ids()...)
		}
	}
}

// containing notes which chunks are ready as a Contains reaches its machine: a claim may end in that very step.
func (l *ledger) containing(n *node, c *command) {
	n.seen.here = n.seen.here[:0]
	for _, id := range l.w.jobs[c.job].ids {
		_, here := n.ready(l.keys[id])
		n.seen.here = append(n.seen.here, here)
	}
}

// contained checks how many chunks a receiver says it can have now.
func (l *ledger) contained(n *node, e *effects.Deliver, c *command) {
	ids := l.w.jobs[c.job].ids
	if e.Code != effects.OK || !n.delays {
		return
	}
	l.judged(checkContains)
	if int(e.Hits) > len(ids) {
		l.fail(checkContains, "node %d says that it can have %d chunks for ticket %d (contains), there are %d",
			n.it(), e.Hits, oracle.Ticket(e.Ticket), len(ids))
		return
	}
	for i, id := range ids {
		_, here := n.ready(l.keys[id])
		perhaps, lies := here || n.seen.here[i], false
		for m := range n.seen.kept {
			k := &n.seen.kept[m]
			lies = lies || k.lies && l.stands(k)
			perhaps = perhaps || l.stands(k) && slices.ContainsFunc(k.chunks, func(x keptChunk) bool { return x.id == id && !x.left })
		}
		switch {
		case i < int(e.Hits) && !perhaps && !lies:
			l.fail(checkContains,
				"node %d says that it can have chunk %d of ticket %d (contains), key %d, which is neither here nor in any "+
					"offer that stands",
				n.it(), i, oracle.Ticket(e.Ticket), oracle.Key(id))
		case i == int(e.Hits) && (here && n.seen.here[i] || l.promisedHere(n, id)): // It may have come later in the step.
			l.fail(checkContains,
				"node %d says that it cannot have chunk %d of ticket %d (contains), key %d, which is here or was promised "+
					"for longer",
				n.it(), i, oracle.Ticket(e.Ticket), oracle.Key(id))
		}
	}
}

// placed compares the chunks that a machine keeps places of with those that it must and may.
func (l *ledger) placed(n *node, s *rank.Stats) {
	least, most := 0, 0
	for i := range n.seen.kept {
		k := &n.seen.kept[i]
		if !l.stands(k) {
			continue
		}
		sure := l.sure(n, k)
		for m := range k.chunks {
			if !k.chunks[m].left {
				most++
			}
			if sure && !k.chunks[m].perhaps {
				least++
			}
		}
	}
	if n.draining {
		l.void(checkPlacesPromised)
	} else if most > 0 {
		l.judged(checkPlacesPromised, checkPlacesStanding)
	}
	switch {
	case n.draining:
	case s.Places < least:
		l.fail(checkPlacesPromised, "node %d keeps %d chunks of offers, it promised %d for longer", n.it(), s.Places, least)
	case s.Places > most:
		l.fail(checkPlacesStanding, "node %d keeps %d chunks of offers, only %d can still be read", n.it(), s.Places, most)
	}
	if len(n.seen.fetches) == 0 {
		n.seen.kept = slices.DeleteFunc(n.seen.kept, func(k keptOffer) bool { return !l.stands(&k) })
	}
}

// endSaid checks the end of an offer as it is told to its sender: nothing is said twice of what was handed over once.
func (l *ledger) endSaid(n *node, m *protocol.PullDoneSignal, taken bool) {
	if !m.HasExt {
		return
	}
	for i := range n.seen.kept {
		k := &n.seen.kept[i]
		if k.pull != m.PullID || protocol.UUID(k.peer) != m.Ext.To {
			continue
		}
		l.judged(checkEndEarly)
		if !n.draining && l.sure(n, k) && slices.ContainsFunc(k.chunks, func(c keptChunk) bool { return !c.perhaps }) {
			l.fail(checkEndEarly, "node %d says that grant %d has ended although it promised more of its chunks for longer",
				n.it(), n.itsGrant(k.loan.id))
		}
		k.over = true
	}
	for _, o := range l.w.nodes {
		if !o.is(effects.Incarnation(m.Ext.To)) {
			continue
		}
		g := o.pool.loan(effects.GrantID(m.Ext.Grant))
		if g == nil || !n.is(g.peer) {
			continue
		}
		l.judged(checkEndTwice)
		g.loan.said = true
		if taken {
			g.loan.words++
		}
		if g.loan.words > g.loan.came { // Who offers again has not heard of the end, and is told once more.
			l.fail(checkEndTwice, "node %d says more often that grant %d has ended than that was offered",
				n.it(), n.itsGrant(g.id))
		}
	}
}
