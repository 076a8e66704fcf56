package sim

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
)

// ledger is what the oracles know: the truth about pages, keys and promises, kept
// from what drivers saw and never from what a machine thinks. Every check names its
// property in docs/safety.md.
type ledger struct {
	w       *world
	fills   uint32
	buffers map[effects.BufferID]*pool
	lives   map[lifeID]effects.Incarnation
	stored  [][]bool              // by node: the keys that ever became whole there
	keys    [][]byte              // by number
	request protocol.AllocRequest // read again and again
}

type lifeID struct {
	node int32
	life uint32
}

func (l *ledger) init(w *world) {
	l.w = w
	l.buffers, l.lives = map[effects.BufferID]*pool{}, map[lifeID]effects.Incarnation{}
	l.stored = make([][]bool, w.plan.Senders+w.plan.Receivers)
	l.keys = make([][]byte, w.plan.keys+probesMax)
	for i := range l.stored {
		l.stored[i] = make([]bool, len(l.keys))
	}
}

func (l *ledger) newFill() uint32 { l.fills++; return l.fills }

func (l *ledger) started(n *node, b effects.BufferID) {
	if old := l.buffers[b]; old != nil {
		l.w.fail("S12", "node %d starts with the buffer id of another life", n.id)
	}
	l.buffers[b] = n.pool
	l.lives[lifeID{n.id, n.life}] = n.incarnation
}

func (l *ledger) incarnation(node int32, life uint32) effects.Incarnation {
	return l.lives[lifeID{node, life}]
}

// died forgets what a life's engine wanted.
func (l *ledger) died(n *node) {
	for i := range l.w.commands {
		c := &l.w.commands[i]
		if c.node == n.id && c.life == n.life && (!c.over || c.held) {
			c.over, c.held = true, false
			l.w.unfinished--
		}
	}
}

// ---- memory at the receiver ----

// granting checks that pages which may be written from now on are nobody else's.
func (l *ledger) granting(n *node, e *effects.Grant) {
	if n.grants[e.ID] != nil {
		l.w.fail("S12", "node %d grants under id %d a second time", n.id, e.ID)
		return
	}
	for _, p := range e.Pages {
		pg := &n.pool.pages[p.Index]
		switch {
		case pg.writers > 0:
			l.w.fail("S4", "node %d grants page %d under grant %d while a transfer may still store into it", n.id, p.Index, e.ID)
		case pg.granted != 0:
			l.w.fail("S5", "node %d grants page %d under grant %d while it is granted under %d", n.id, p.Index, e.ID, pg.granted)
		case pg.pins > 0:
			l.w.fail("S4", "node %d grants page %d under grant %d while the engine reads it", n.id, p.Index, e.ID)
		case p.Generation <= pg.last:
			l.w.fail("S2", "node %d grants page %d with generation %d after %d", n.id, p.Index, p.Generation, pg.last)
		}
		pg.granted, pg.since, pg.last = e.ID, p.Generation, p.Generation
	}
}

// revoked ends a grant, but for what landed.
func (l *ledger) revoked(n *node, id effects.GrantID) {
	for i := range n.pool.pages {
		if pg := &n.pool.pages[i]; pg.granted == id {
			pg.granted = 0
		}
	}
}

// words reads what an initiator says of its grants as it arrives: on leased planes its
// word ends them. It must be true: nothing of theirs may still be under way.
func (l *ledger) words(n *node, body []byte) {
	limits := protocol.DefaultLimits()
	if l.request.Decode(body, &limits) != nil || !l.request.HasExt || l.request.Ext.To != protocol.UUID(n.incarnation) {
		return
	}
	for _, list := range [][]uint64{l.request.Ext.Commit, l.request.Ext.Abort} {
		for _, id := range list {
			g := n.grants[effects.GrantID(id)]
			if g == nil || protocol.UUID(g.peer) != l.request.Ext.Incarnation {
				continue
			}
			for _, p := range g.pages {
				pg := &n.pool.pages[p.Index]
				if pg.granted != g.id {
					continue
				}
				if pg.writers > 0 {
					l.w.fail("S3", "node %d is told that grant %d has ended while a store into page %d is under way", n.id, id, p.Index)
					return
				}
				pg.granted = 0
			}
		}
	}
}

// landed ends a fenced grant for the pages that are whole.
func (l *ledger) landed(t *transfer) {
	for _, p := range t.landed {
		t.target.pages[p.Index].granted = 0
	}
}

// ready notes that a chunk became readable, if only for an instant, and looks at it
// where the machine says that it is: it must be whole.
func (l *ledger) ready(n *node, hash uint64) {
	k, ok := l.named(n, hash)
	if !ok {
		l.w.fail("S9", "node %d says that a chunk is ready that nobody put", n.id)
		return
	}
	l.stored[n.id][k] = true
	p, ok := n.machine.Ready(l.keys[k])
	if !ok {
		return // Somebody who waited for its page had it in the same step.
	}
	pg := &n.pool.pages[p.Index]
	for part := range n.pool.partsOf(p.Length) {
		if s := pg.stamps[part]; s.key() != k || s.part() != part || s.fill() != pg.stamps[0].fill() {
			l.w.fail("S1", "node %d takes page %d for ready although it is not whole", n.id, p.Index)
			return
		}
	}
}

// named finds the key that a machine's hash means in this life.
func (l *ledger) named(n *node, hash uint64) (uint32, bool) {
	if k, ok := n.keys[hash]; ok {
		return k, true
	}
	for k, text := range l.keys {
		if text != nil {
			n.keys[n.machine.KeyHash(text)] = uint32(k)
		}
	}
	k, ok := n.keys[hash]
	return k, ok
}

// flying counts a store that hardware was given.
func (l *ledger) flying(t *transfer, pair int) {
	t.writing = append(t.writing, pair)
	t.target.pages[t.pairs[pair].Remote.Index].writers++
}

// flown ends it.
func (l *ledger) flown(t *transfer, pair int) {
	if i := slices.Index(t.writing, pair); i >= 0 {
		t.writing = slices.Delete(t.writing, i, i+1)
		t.target.pages[t.pairs[pair].Remote.Index].writers--
	}
}

// unmapped: what is still under way can no longer reach the pages.
func (l *ledger) unmapped(n *node, id effects.GrantID) {
	for _, t := range l.w.transfers {
		if t.target == n.pool && t.grant == id {
			for len(t.writing) > 0 {
				l.flown(t, t.writing[0])
			}
		}
	}
}

// storing checks one store at its instant: the page must be granted to that very
// transfer, nobody may be reading it, and what is read must still be lent.
func (l *ledger) storing(t *transfer, i, half int) {
	p := t.pairs[i]
	dst, src := &t.target.pages[p.Remote.Index], &t.source.pages[p.Local.Index]
	to := t.target.node
	switch {
	case dst.granted != t.grant:
		l.w.fail("S3", "a store of transfer %d lands on page %d of node %d, which is granted to %d instead of %d",
			t.id, p.Remote.Index, to.id, dst.granted, t.grant)
	case p.Remote.Generation != 0 && dst.since != p.Remote.Generation:
		l.w.fail("S3", "a store of transfer %d lands on page %d of node %d in generation %d instead of %d",
			t.id, p.Remote.Index, to.id, dst.since, p.Remote.Generation)
	case dst.pins > 0:
		l.w.fail("S3", "a store of transfer %d lands on page %d of node %d while its engine reads it", t.id, p.Remote.Index, to.id)
	case t.source.alive() && !t.reading && !l.w.plan.Leased && half == 0:
		l.w.fail("S19", "transfer %d reads page %d of node %d after it was settled", t.id, p.Local.Index, t.source.node.id)
	case t.source.alive() && t.reading && src.readers == 0:
		l.w.fail("S19", "transfer %d reads page %d of node %d, which is not lent", t.id, p.Local.Index, t.source.node.id)
	}
}

// got pins what a Get delivered.
func (l *ledger) got(n *node, e *effects.Deliver, c *command) {
	for _, p := range e.Pages {
		pg := &n.pool.pages[p.Index]
		switch {
		case pg.writers > 0:
			l.w.fail("S4", "node %d delivers page %d while a transfer may still store into it", n.id, p.Index)
		case !l.w.plan.Leased && pg.granted != 0:
			l.w.fail("S3", "node %d delivers page %d while it is granted under %d", n.id, p.Index, pg.granted)
		case p.Generation != pg.last:
			l.w.fail("S2", "node %d delivers page %d of generation %d, it is in %d", n.id, p.Index, p.Generation, pg.last)
		}
		pg.granted = 0 // A leased grant ended by commit.
		pg.pins++
	}
}

// verify reads the pages that a Get delivered, as the engine would.
func (l *ledger) verify(n *node, j *job, pages []effects.Page) {
	for i, p := range pages {
		covered := n.pool.partsOf(p.Length)
		if want := int(j.tokensOf(i)); covered != want && !l.lengthFree(j, i) {
			l.w.fail("S21", "chunk %d of request %s has %d parts at node %d instead of %d", i, j.name, covered, n.id, want)
			return
		}
		pg := &n.pool.pages[p.Index]
		for part := range covered {
			s := pg.stamps[part]
			switch {
			case s == 0 || s.part() != part:
				l.w.fail("S1", "chunk %d of request %s at node %d: part %d of page %d was never stored", i, j.name, n.id, part, p.Index)
			case s.key() != j.ids[i] && pg.stamps[0].key() != j.ids[i]:
				l.w.fail("S2", "chunk %d of request %s at node %d: page %d holds key %d instead of %d", i, j.name, n.id, p.Index, s.key(), j.ids[i])
			case s.key() != j.ids[i]:
				l.w.fail("S1", "chunk %d of request %s at node %d: page %d is torn between keys %d and %d", i, j.name, n.id, p.Index, j.ids[i], s.key())
			case s.fill() != pg.stamps[0].fill():
				l.w.fail("S23", "chunk %d of request %s at node %d: page %d comes from two origins", i, j.name, n.id, p.Index)
			default:
				continue
			}
			return
		}
	}
}

// lengthFree: a key that comes twice in a job has the length of its first place or its last.
func (l *ledger) lengthFree(j *job, i int) bool {
	for k, id := range j.ids {
		if k != i && id == j.ids[i] {
			return true
		}
	}
	return false
}

// ---- memory at the sender ----

func (l *ledger) reserved(n *node, e *effects.Deliver, c *command) {
	if len(e.Pages) != int(c.count) {
		l.w.fail("S5", "node %d reserves %d pages instead of %d", n.id, len(e.Pages), c.count)
		return
	}
	for _, p := range e.Pages {
		pg := &n.pool.pages[p.Index]
		switch {
		case pg.reserved != 0:
			l.w.fail("S5", "node %d reserves page %d for ticket %d while ticket %d has it", n.id, p.Index, e.Ticket, pg.reserved)
		case pg.readers > 0:
			l.w.fail("S4", "node %d reserves page %d for ticket %d while a transfer may still read it", n.id, p.Index, e.Ticket)
		case p.Generation <= pg.last:
			l.w.fail("S2", "node %d reserves page %d with generation %d after %d", n.id, p.Index, p.Generation, pg.last)
		}
		pg.reserved, pg.last = e.Ticket, p.Generation
	}
	// First in, first out: whoever asked earlier for no more must not still wait.
	for i := int(e.Ticket) - 2; i >= 0; i-- {
		o := &l.w.commands[i]
		if o.want == wantReserve && o.node == n.id && o.life == n.life && !o.over && o.count <= c.count {
			l.w.fail("L7", "node %d reserves for ticket %d while ticket %d waits longer for no more pages", n.id, e.Ticket, i+1)
			return
		}
	}
}

// releasing clears what the engine had by a ticket, from before the machine knows.
func (l *ledger) releasing(n *node, t effects.Ticket) {
	c := &l.w.commands[t-1]
	for _, p := range c.pages {
		pg := &n.pool.pages[p.Index]
		if c.want == wantReserve {
			pg.reserved = 0
		} else {
			pg.pins--
		}
	}
}

// transferring checks a Transfer as it leaves the machine.
func (l *ledger) transferring(n *node, t *transfer, e *effects.Transfer) {
	t.reading = true
	if t.link.told {
		l.w.fail("L5", "node %d transfers on link %d, of whose loss it was told", n.id, t.link.id)
		return
	}
	for _, p := range e.Pairs {
		if target := l.buffers[p.Remote.Buffer]; target == nil || target != t.target || l.lives[lifeID{target.node.id, target.life}] != e.Peer {
			l.w.fail("S12", "node %d transfers to a buffer of another life than its link's", n.id)
			return
		}
		if int(p.Remote.Index) >= len(t.target.pages) || int(p.Local.Index) >= len(n.pool.pages) {
			l.w.fail("S11", "node %d transfers to page %d of %d", n.id, p.Remote.Index, len(t.target.pages))
			return
		}
		if t.target.node.cfg.Layout != n.cfg.Layout {
			l.w.fail("S22", "node %d transfers to node %d, whose layout differs", n.id, t.target.node.id)
			return
		}
		src := &n.pool.pages[p.Local.Index]
		if src.reserved == 0 || src.last != p.Local.Generation {
			l.w.fail("S19", "node %d transfers page %d, which its engine has not lent", n.id, p.Local.Index)
			return
		}
		if lent := l.w.commands[src.reserved-1].pages; !hasLength(lent, p.Local) {
			l.w.fail("S21", "node %d transfers %d bytes of page %d, more or fewer than its chunk has", n.id, p.Local.Length, p.Local.Index)
			return
		}
		src.readers++
	}
}

func hasLength(pages []effects.Page, p effects.Page) bool {
	for _, q := range pages {
		if q.Index == p.Index {
			return q.Length == p.Length
		}
	}
	return false
}

// settled ends what a transfer may read, as its initiator is told so.
func (l *ledger) settled(t *transfer) {
	if !t.reading {
		return
	}
	t.reading = false
	for _, p := range t.pairs {
		t.source.pages[p.Local.Index].readers--
	}
}

// lentBack checks that memory which the engine gets back is not read any more.
func (l *ledger) lentBack(n *node, c *command) {
	for _, p := range c.pages {
		if n.pool.pages[p.Index].readers > 0 {
			l.w.fail("S19", "node %d gives page %d back to its engine while a transfer may still read it", n.id, p.Index)
			return
		}
	}
}

// ---- promises ----

// putOK checks that a put which went well left every chunk at the receiver.
func (l *ledger) putOK(n *node, e *effects.Deliver, c *command) {
	j := &l.w.jobs[c.job]
	b := j.batches[c.batch]
	if missing := l.missing(j, b); missing > 0 {
		l.w.fail("S9", "node %d ends put %d well although %d of its chunks never became whole at node %d", n.id, e.Ticket, missing, j.receiver)
	}
}

// missing counts the chunks of a batch that never were whole at the receiver, in any
// of its lives: what a restart lost is nobody's lie.
func (l *ledger) missing(j *job, b batch) (n int) {
	for _, id := range j.ids[b.from:b.to] {
		if !l.stored[j.receiver][id] {
			n++
		}
	}
	return n
}

// told checks a notification as it leaves the sender. One that the transport would not
// take counts as never sent: its sender is told so.
func (l *ledger) told(n *node, m *protocol.ProxyNotif, taken bool) {
	i := l.w.jobNamed(m.RequestID)
	if i >= uint64(len(l.w.jobs)) || l.w.jobs[i].sender != n.id {
		l.w.fail("S9", "node %d tells the proxy of request %q, which is none of its", n.id, m.RequestID)
		return
	}
	j := &l.w.jobs[i]
	if j.life != n.life {
		l.w.fail("S12", "node %d tells the proxy of request %q of its former life", n.id, m.RequestID)
		return
	}
	if taken {
		j.told++
	}
	if j.told > 1 {
		l.w.fail("S9", "node %d tells the proxy of request %q twice", n.id, m.RequestID)
		return
	}
	missing := 0
	for _, b := range j.batches {
		if b.put != 0 {
			missing += l.missing(j, b)
		}
	}
	if missing > int(m.Failed) {
		l.w.fail("S9", "node %d tells the proxy that %d chunks of request %q are missing, it is %d", n.id, m.Failed, m.RequestID, missing)
	}
}

// afterStep compares what the machine counts with what the drivers saw.
func (l *ledger) afterStep(n *node) {
	s := n.machine.Stats()
	held := 0
	for i := range n.pool.pages {
		pg := &n.pool.pages[i]
		if pg.writers > 0 || pg.readers > 0 || pg.reserved != 0 || pg.pins > 0 || pg.granted != 0 && !l.w.plan.Leased {
			held++
		}
	}
	if s.PagesTotal != len(n.pool.pages) || s.PagesFree < 0 || s.PagesFree+held > s.PagesTotal {
		l.w.fail("S5", "node %d counts %d of %d pages free while %d are in use", n.id, s.PagesFree, s.PagesTotal, held)
	}
}
