package ledger

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

var checkKept = oracle.NewCheck("S9", "gets of what was promised")

// claimsOracle judges what is kept for a request.
type claimsOracle struct {
	judge
	perLife[claimsLife]
}

func (*claimsOracle) listen(l *oracle.Listen[claimsOracle]) {
	oracle.On(l, func(o *claimsOracle, _ *oracle.Call, e pd.Got) {
		if e.Command.Want == plan.WantGet {
			o.kept(e.Node, e.Effect, e.Command)
		}
	})
	oracle.On(l, func(o *claimsOracle, _ *oracle.Call, e counted) { o.crowding(e.node, e.stats) })
}

type claimsLife struct {
	crowded int64 `snap:"skip"` // when the table of claims was last almost full
}

func (s *claimsLife) empty() { *s = claimsLife{} }

// kept checks the first Get of a request that comes to an end against what its puts promised: chunks of a put that
// ended well, sent or there already, stay for the request's own reader until the time of its claims is over, whoever
// else reads them (rule M7).
func (or *claimsOracle) kept(n *world.Node, e *effects.Deliver, c *pd.Command) {
	j := &or.w.Jobs[c.Job]
	if !misses(e.Code) || j.Given[plan.WantAbandon] > 0 || n.Leaving || n.Draining {
		return
	}
	for i := range j.Batches {
		b := &j.Batches[i]
		short := int(e.Hits) < b.To
		if !or.promisedTo(n, b) || short && or.read(n, c.Job) {
			or.void(checkKept)
			return // It may be missing, and a Get finds nothing behind a chunk that is.
		}
		if or.judged(checkKept); short {
			or.fail(checkKept,
				"node %d gives ticket %d (get) no more than %d chunks of request %q although put %d, which ended well, promised %d",
				n.It(), oracle.Ticket(e.Ticket), e.Hits, oracle.Request(j.Name), oracle.Ticket(b.Put), b.To)
			return
		}
	}
}

// promisedTo says whether a put promises the chunks of a batch to a reader at n at this instant.
func (or *claimsOracle) promisedTo(n *world.Node, b *pd.Batch) bool {
	put, given := or.promise(n, b)
	return put != nil && n.Shows(or.w.Now).Sub(n.Shows(given)) < pd.Its(n).Cfg.ClaimTTL
}

// promise returns the put that made n promise the chunks of a batch, and when that put began; nil if no put certainly
// did. A put promises nothing but at the node that it went to: in a world of nodes that prefill and decode an engine may
// ask the sender's node for the request, which keeps nothing for it.
func (or *claimsOracle) promise(n *world.Node, b *pd.Batch) (put *pd.Command, given int64) {
	if b.Put == 0 || b.Refilled || b.Life != n.Life {
		return nil, 0
	}
	put = &or.w.Commands[b.Put-1]
	sender := or.w.Nodes[put.Node]
	if or.w.Jobs[put.Job].Receiver != n.ID || n.Delays && sender.Pulls {
		return nil, 0
	}
	if !put.Over || put.Code != effects.OK || !or.w.Lives(put.Node, put.Life) {
		return nil, 0 // It may also be over because its node died.
	}
	// No claim is older than its put, and while a peer has its share of claims it gets no more but the first on a page.
	given = pd.Begun(put, sender)
	if given <= or.at(n).crowded {
		return nil, 0
	}
	return put, given
}

// read says whether the request's claims at n may have ended by its own commands: an earlier Get got chunks, or a Fetch
// was given, which uses up what it begins with even if it fails, or what it began with was let go of.
func (or *claimsOracle) read(n *world.Node, job int) bool {
	for i := range or.w.Commands {
		c := &or.w.Commands[i]
		if c.Job != job || c.Node != n.ID || c.Life != n.Life {
			continue
		}
		if c.Want == plan.WantGet && len(c.Pages) > 0 || c.Want == plan.WantFetch || c.Want == pd.WantGiveUp {
			return true
		}
	}
	return false
}

// crowding notes when so many claims are open that one step could bring a peer to its share. No peer gets there before
// half of the table is taken; unless a plan says otherwise that has room for eight of each page beyond the first.
func (or *claimsOracle) crowding(n *world.Node, s *rank.Stats) {
	room := 8 * s.PagesTotal
	if pd.Its(n).Cfg.ClaimsMax > 0 {
		room = int(pd.Its(n).Cfg.ClaimsMax)
	}
	if s.Claims >= max(0, room/2-s.PagesTotal) {
		or.at(n).crowded = or.w.Now
	}
}
