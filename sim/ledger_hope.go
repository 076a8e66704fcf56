package sim

import (
	"bytes"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
)

// A Get waits for as long as it said, unless the last thing is gone that its next chunk was to come of (L8): a fill, an
// offer that is kept, a request or an offer that waits for memory. Then it ends in that very step.

// What is judged here.
var (
	checkGaveUp   = newCheck("L8", "gets that end early")
	checkHopeless = newCheck("L8", "gets that lost their hope")
	checkHopeKept = newCheck("L8", "gets that wait for offers")
)

// lost notes that a fill will not come.
func (l *ledger) lost(n *node, hash uint64) {
	n.seen.dimmed = true
	if k, ok := l.named(n, hash); ok {
		n.seen.lost = append(n.seen.lost, k)
	}
}

// refusal notes that the machine is about to refuse a request or an offer. Of one that its sender is to repeat nothing
// is lost.
func (l *ledger) refusal(n *node, code effects.Code) {
	if code != effects.Stale && code != effects.Expired {
		n.seen.refused, n.seen.dimmed = code, true
	}
}

// turnedDown notes that a request or an offer that waited came to nothing, and so what it had, as its answer leaves,
// which the fact of its refusal came before. One that is refused at once was no hope.
func (l *ledger) turnedDown(n *node, w *waiter) {
	given := n.seen.refused == effects.OK
	n.seen.refused = effects.OK
	if given || w.fresh || len(w.body) == 0 || len(n.seen.gets) == 0 {
		return
	}
	for _, key := range l.namesOf(w) {
		l.lost(n, n.keyHash(key))
	}
}

// namesOf are the keys that a request or an offer named.
func (l *ledger) namesOf(w *waiter) [][]byte {
	m, o := &l.ask, &l.pull
	switch {
	case len(w.body) == 0:
		return nil
	case m.Decode(w.body, &wireLimits) == nil:
		return m.Keys
	case o.Decode(w.body, &wireLimits) == nil:
		return o.Keys
	}
	return nil
}

// gaveUp checks a Get that ends short before its time: something was lost in this step, and of the chunks that it
// misses there is one that nothing can bring any more.
func (l *ledger) gaveUp(n *node, e *effects.Deliver, c *command) {
	wait := min(c.patience, n.cfg.GetWaitMax)
	if e.Code != effects.NotFound && e.Code != effects.Lapsed || wait == 0 || n.draining {
		return
	}
	begun := c.due - int64(n.slowest(c.patience)+grace)
	left := wait - n.shows(l.w.now).Sub(n.shows(begun))
	if left <= 0 {
		return
	}
	l.judged(checkGaveUp)
	if !n.delays && !n.seen.dimmed {
		l.fail(checkGaveUp, "node %d ends ticket %d (%s) %d ns before its time although nothing was lost that it waits for",
			n.it(), oracle.Ticket(e.Ticket), c.want, left)
		return
	}
	j := &l.w.jobs[c.job]
	for i := int(e.Hits); i < len(j.keys); i++ {
		if _, ready := n.ready(j.keys[i]); !ready && !l.comes(n, j.keys[i], j.ids[i]) {
			return
		}
	}
	l.fail(checkGaveUp, "node %d ends ticket %d (%s) %d ns before its time although chunk %d may still come",
		n.it(), oracle.Ticket(e.Ticket), c.want, left, j.ids[e.Hits])
}

// comes says whether a chunk certainly may come: its sender keeps it for us, or waits with it for pages, or has pages
// for it.
func (l *ledger) comes(n *node, key []byte, id uint32) bool {
	named := func(w *waiter) bool {
		return slices.ContainsFunc(l.namesOf(w), func(k []byte) bool { return bytes.Equal(k, key) })
	}
	if n.delays && l.promisedHere(n, id) {
		return true
	}
	for i := range n.seen.waiters {
		if w := &n.seen.waiters[i]; w.keys > 0 && !w.reading && w.conn != 0 && named(w) {
			return true
		}
	}
	return false
}

// hopeless checks that no Get waits on whose next chunk was to come of what was lost in this step, with nothing else
// to come.
func (l *ledger) hopeless(n *node) {
	q := &n.seen
	if len(q.lost) == 0 {
		return
	}
	for _, t := range q.gets {
		if l.w.commands[t-1].over {
			continue
		}
		j := &l.w.jobs[l.w.commands[t-1].job]
		for i, k := range j.keys {
			if _, ok := n.ready(k); ok {
				continue
			}
			// One that was here before may be gone since: the Get is past it, and waits for a later one.
			if slices.Contains(q.lost, j.ids[i]) && !l.stored[n.id][j.ids[i]] {
				l.judged(checkHopeless)
				if n.hope(k) {
					break
				}
				l.fail(checkHopeless, "node %d lets ticket %d (get) wait for chunk %d although its last hope is gone",
					n.it(), oracle.Ticket(t), j.ids[i])
			}
			break
		}
	}
	q.lost = q.lost[:0]
}

// waitsForKept checks that no Get waits on for a chunk that a sender kept for it until this step, if nothing can bring
// that any more.
func (l *ledger) waitsForKept(n *node) {
	for _, t := range n.seen.gets {
		c := &l.w.commands[t-1]
		if c.over || c.due == 0 {
			continue
		}
		j, was := &l.w.jobs[c.job], c.from
		for c.from < len(j.keys) && l.isReady(n, j.keys[c.from]) {
			c.from++
		}
		if c.from == len(j.keys) { // What was here before is gone.
			c.from, c.hoped = 0, false
			continue
		}
		kept := l.promisedHere(n, j.ids[c.from])
		if c.hoped && c.from == was && !kept {
			l.judged(checkHopeKept)
		}
		if c.hoped && c.from == was && !kept && !n.hope(j.keys[c.from]) {
			l.fail(checkHopeKept, "node %d lets ticket %d (%s) wait for chunk %d although its last hope, a kept offer, is gone",
				n.it(), oracle.Ticket(t), c.want, j.ids[c.from])
			return
		}
		c.hoped = kept
	}
}

func (l *ledger) isReady(n *node, key []byte) bool {
	_, ready := n.ready(key)
	return ready
}
