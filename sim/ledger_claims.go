package sim

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

var checkKept = oracle.NewCheck("S9", "gets of what was promised")

// claimsOracle judges what is kept for a request.
type claimsOracle struct {
	judge
	perLife[claimsLife]
}

type claimsLife struct {
	crowded int64 `snap:"skip"` // when the table of claims was last almost full
}

func (s *claimsLife) empty() { *s = claimsLife{} }

// kept checks the first Get of a request that comes to an end against what its puts promised: chunks of a put that
// ended well, sent or there already, stay for the request's own reader until the time of its claims is over, whoever
// else reads them (rule M7).
func (or *claimsOracle) kept(n *world.Node, e *effects.Deliver, c *command) {
	j := &or.w.jobs[c.job]
	if e.Code != effects.NotFound && e.Code != effects.Lapsed || j.given[plan.WantAbandon] > 0 || n.Leaving || n.Draining {
		return
	}
	for i := range j.batches {
		b := &j.batches[i]
		short := int(e.Hits) < b.to
		if !or.promisedTo(n, b) || short && or.hadSome(c.job) {
			or.void(checkKept)
			return // It may be missing, and a Get finds nothing behind a chunk that is.
		}
		if or.judged(checkKept); short {
			or.fail(checkKept,
				"node %d gives ticket %d (get) no more than %d chunks of request %q although put %d, which ended well, promised %d",
				n.It(), oracle.Ticket(e.Ticket), e.Hits, oracle.Request(j.name), oracle.Ticket(b.put), b.to)
			return
		}
	}
}

// promisedTo says whether a put promises the chunks of a batch to a reader at this instant.
func (or *claimsOracle) promisedTo(n *world.Node, b *batch) bool {
	if b.put == 0 || b.refilled || b.life != n.Life || n.Delays && or.w.Nodes[or.w.commands[b.put-1].node].Pulls {
		return false
	}
	put := &or.w.commands[b.put-1]
	if !put.over || put.code != effects.OK || !or.w.Lives(put.node, put.life) {
		return false // It may also be over because its node died.
	}
	// No claim is older than its put, and while a peer has its share of claims it gets no more but the first on a page.
	given := put.due - int64(or.w.Nodes[put.node].Slowest(put.patience)+grace)
	return given > or.at(n).crowded && n.Shows(or.w.Now).Sub(n.Shows(given)) < its(n).cfg.ClaimTTL
}

// hadSome says whether an earlier Get of the request got chunks: its claims ended with that.
func (or *claimsOracle) hadSome(job int) bool {
	for i := range or.w.commands {
		if c := &or.w.commands[i]; c.want == plan.WantGet && c.job == job && len(c.pages) > 0 {
			return true
		}
	}
	return false
}

// crowding notes when so many claims are open that one step could bring a peer to its share. No peer gets there before half of the table is
// taken; unless a plan says otherwise that has room for eight of each page beyond the first.
func (or *claimsOracle) crowding(n *world.Node, s *rank.Stats) {
	room := 8 * s.PagesTotal
	if its(n).cfg.ClaimsMax > 0 {
		room = int(its(n).cfg.ClaimsMax)
	}
	if s.Claims >= max(0, room/2-s.PagesTotal) {
		or.at(n).crowded = or.w.Now
	}
}
