package sim

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/sim/oracle"
)

// What is promised of fetches: one that ends well has handed all of its chunks over; one that fails has a cause of its
// own; and none waits without need.

// What is judged here.
var (
	checkFetchForm   = newCheck("L1", "forms of fetches' outcomes")
	checkFetchWhole  = newCheck("S1", "fetches that end well")
	checkFetchMissed = newCheck("S9", "fetches that miss chunks")
	checkFetchCause  = newCheck("S18", "causes of fetches that fail")
	checkFetchTables = newCheck("S17", "tables of fetches")
	checkStaging     = newCheck("S15", "staging pages")
	checkFetchBegins = newCheck("L8", "fetches that wait")
)

// asked is what the ledger knows of a fetch besides what its device code has got.
type asked struct {
	at     int64  `snap:"instant"` // when its machine got it
	excuse uint32 // codes that something which happened to it, or to what it reads, can end it with
	had    bool   // all of its chunks were to be had before the step in which its time was over
}

// fetchGiven notes a fetch as it reaches its machine.
func (l *ledger) fetchGiven(n *node, t effects.Ticket) {
	l.w.commands[t-1].asked.at = l.w.now
	n.seen.fetches = append(l.openFetches(n), t)
}

// fetchesDue notes, before a step, of the fetches whose time is over in it whether all of their chunks are to be had. The
// step ends them before it serves those who wait for pages, whose chunks may be readable at once: so what is here
// after it does not say what was here at their end.
func (l *ledger) fetchesDue(n *node) {
	if !n.delays {
		return
	}
	for _, t := range l.openFetches(n) {
		if c := &l.w.commands[t-1]; !l.patient(n, c) {
			c.asked.had = l.missed(n, c) < 0
		}
	}
}

// openFetches are those that the machine was given and has not delivered.
func (l *ledger) openFetches(n *node) []effects.Ticket {
	n.seen.fetches = slices.DeleteFunc(n.seen.fetches, func(t effects.Ticket) bool { return l.w.commands[t-1].over })
	return n.seen.fetches
}

// wanted are the chunks of a fetch.
func (l *ledger) wanted(c *command) []uint32 {
	return l.w.jobs[c.job].ids[c.from : c.from+int(c.count)]
}

// fetchEnded checks the outcome of a fetch.
func (l *ledger) fetchEnded(n *node, e *effects.Deliver, c *command) {
	l.judged(checkFetchForm)
	switch {
	case len(e.Pages) > 0 || e.Code != effects.OK && e.Hits > 0:
		l.fail(checkFetchForm, "node %d delivers ticket %d (fetch) as %s with %d hits and %d pages",
			n.it(), oracle.Ticket(e.Ticket), e.Code, e.Hits, len(e.Pages))
	case e.Code != effects.OK:
		l.fetchFailed(n, e, c)
	default:
		l.judged(checkFetchWhole)
		if c.device.got != c.count || e.Hits != c.count || e.Held {
			l.fail(checkFetchWhole,
				"node %d ends ticket %d (fetch) well with %d hits although its engine was handed %d of %d chunks",
				n.it(), oracle.Ticket(e.Ticket), e.Hits, c.device.got, c.count)
		}
	}
	l.fetchMeets(n, e, c)
	if e.Code == effects.OK || e.Begun { // One that only waited takes nothing with it.
		l.left(n, c)
	}
}

// fetchFailed checks that a fetch which failed had a cause of its own.
func (l *ledger) fetchFailed(n *node, e *effects.Deliver, c *command) {
	if e.Code == effects.NotFound || e.Code == effects.Lapsed {
		if c.asked.excuse>>e.Code&1 == 1 {
			l.void(checkFetchMissed)
		} else if l.judged(checkFetchMissed); (c.asked.had || l.patient(n, c)) && l.missed(n, c) < 0 {
			l.fail(checkFetchMissed,
				"node %d misses chunks of ticket %d (fetch) although all are ready, or were promised for longer",
				n.it(), oracle.Ticket(e.Ticket))
			return
		}
	}
	if l.judged(checkFetchCause); !l.excused(n, c, e.Code) {
		l.fail(checkFetchCause,
			"node %d ends ticket %d (fetch) as %s, and nothing happened to what it reads that explains it",
			n.it(), oracle.Ticket(e.Ticket), e.Code)
	}
}

// missed is the first chunk of a fetch that may really be nowhere; -1 if each must be somewhere.
func (l *ledger) missed(n *node, c *command) int {
	for i, id := range l.wanted(c) {
		if _, ready := n.ready(l.keys[id]); !ready && !l.promisedHere(n, id) {
			return i
		}
	}
	return -1
}

// excused says whether a fetch may have failed so.
func (l *ledger) excused(n *node, c *command, code effects.Code) bool {
	switch {
	case c.asked.excuse>>code&1 == 1:
		return true
	case code == effects.TooMany:
		return n.cfg.FetchesMax < fetchesMany || len(n.seen.fetches) >= fetchesMany/2
	case code == effects.Draining:
		return n.draining
	case code == effects.Expired && l.aged(n, l.wanted(c)):
		return true
	case code == effects.Lapsed:
		return !l.patient(n, c) && slices.ContainsFunc(l.wanted(c), func(k uint32) bool { return n.seen.lapsing.told[k] > 0 })
	case code == effects.Expired, code == effects.NotFound, code == effects.Unreachable:
		return !l.patient(n, c)
	}
	return false
}

// patient says whether a fetch may wait longer.
func (l *ledger) patient(n *node, c *command) bool {
	return n.shows(l.w.now).Sub(n.shows(c.asked.at)) < c.patience
}

// fetchesMany is a table that is not full before half as many are open: those that were delivered and still read have
// places in it, too.
const fetchesMany = 64

// excuse notes what the fetches that want one of some chunks may now fail with.
func (l *ledger) excuse(n *node, code effects.Code, ids ...uint32) {
	for _, t := range n.seen.fetches {
		c := &l.w.commands[t-1]
		if c.asked.excuse>>code&1 == 0 && slices.ContainsFunc(l.wanted(c), func(id uint32) bool { return slices.Contains(ids, id) }) {
			c.asked.excuse |= 1 << code
		}
	}
}

// readFailed notes how a read of some chunks ended: every fetch that wants one of them may fail with that.
func (l *ledger) readFailed(n *node, t *transfer, code effects.Code) {
	if !n.delays || !t.read || t.under == nil || code == effects.OK {
		return
	}
	if code == effects.PeerLost || code == effects.Stale {
		l.outOfReach(n, t.link.peer, effects.PeerLost) // The link is given up.
	}
	for _, p := range t.pairs {
		if at := t.under.place(p.Remote.Index); at >= 0 {
			l.excuse(n, code, t.under.loan.held[at].key())
		}
	}
}

// fetches checks, after a step of a receiver that keeps offers, its tables and its staging pages.
func (l *ledger) fetches(n *node, s *rank.Stats) {
	l.openFetches(n)
	c := &n.cfg
	l.judged(checkFetchTables, checkStaging)
	if s.Offers > int(c.OffersMax) || s.Places > int(c.PlacesMax) || s.Fetches > int(c.FetchesMax) {
		l.fail(checkFetchTables, "node %d has %d offers, %d places and %d fetches, more than it may",
			n.it(), s.Offers, s.Places, s.Fetches)
		return
	}
	staging := 0
	for i := range n.pool.pages {
		if pg := &n.pool.pages[i]; pg.fill != fillNone && (pg.writers > 0 || pg.scatters > 0) {
			staging++
		}
	}
	if staging > s.Staged || s.Staged > int(c.StagingPages) {
		l.fail(checkStaging, "node %d uses %d pages for staging and counts %d, %d are allowed",
			n.it(), staging, s.Staged, c.StagingPages)
		return
	}
	l.placed(n, s)
	l.begun(n, s)
}

// begun checks that no fetch waits whose chunks are all here or promised, while nobody has staging pages.
func (l *ledger) begun(n *node, s *rank.Stats) {
	if s.Staged > 0 || s.PagesFree == 0 || n.draining {
		return
	}
	for _, t := range l.openFetches(n) {
		c := &l.w.commands[t-1]
		l.judged(checkFetchBegins)
		if c.due != 0 && c.device.corr == 0 && l.missed(n, c) < 0 && l.reached(n, l.wanted(c)) {
			l.fail(checkFetchBegins, "node %d lets ticket %d (fetch) wait although all of its chunks are ready or can be read",
				n.it(), oracle.Ticket(t))
			return
		}
	}
}

// staging says whether a page is one that fetches read into, again and again: it has held a read in this life, and never
// a chunk of its own.
func (n *node) staging(pg *page) bool {
	return n.delays && pg.fill != fillNone && pg.last == pg.generation && pg.chunk != pg.generation
}

// importing notes whose plane is imported, and importEnded what became of it.
func (l *ledger) importing(n *node, e *effects.Import) {
	if n.delays {
		n.seen.imports = append(n.seen.imports, importSeen{e.Corr, e.Peer})
	}
}

func (l *ledger) importEnded(n *node, corr effects.Corr, code effects.Code) {
	i := slices.IndexFunc(n.seen.imports, func(x importSeen) bool { return x.corr == corr })
	if i < 0 {
		return
	}
	peer := n.seen.imports[i].peer
	if code != effects.OK {
		l.outOfReach(n, peer, code)
	}
	for m := range n.seen.kept {
		if k := &n.seen.kept[m]; code == effects.Stale && k.peer == peer {
			k.over = true // That life is gone, and all that it offered.
		}
	}
	n.seen.imports = slices.Delete(n.seen.imports, i, i+1)
}

// importSeen is an Import that has not completed.
type importSeen struct {
	corr effects.Corr `snap:"skip"`
	peer effects.Incarnation
}
