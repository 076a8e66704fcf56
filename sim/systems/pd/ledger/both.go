package ledger

import (
	"cmp"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	ops "github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// In a node that both prefills and decodes, the engine and the peers use pages of the same pool and wait for pages in
// the same queue (rule M9): the engine's oldest Reserve competes with the first request of each peer. queueOracle
// judges the order between peers, and the oracle of this file judges the order between peers and the engine.

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkOwnShare    = oracle.NewCheck("S18", "shares of engines")
	checkOwnPassed   = oracle.NewCheck("L7", "reserves passed by peers")
	checkPassedByOwn = oracle.NewCheck("L7", "requests passed by engines")
	checkOwnWaits    = oracle.NewCheck("L7", "reserves that wait for free pages")
)

// bothOracle judges how an engine and the peers of the same node share a pool.
type bothOracle struct {
	judge
	perLife[bothLife]
}

func (*bothOracle) listen(l *oracle.Listen[bothOracle]) {
	oracle.On(l, func(o *bothOracle, _ *oracle.Call, e pd.Commanded) {
		if e.Command.Want == plan.WantReserve {
			o.given(e.Node, e.Ticket)
		}
	})
	oracle.On(l, func(o *bothOracle, _ *oracle.Call, e pd.Outcome) { o.ended(e.Node, e.Effect, e.Command) })
	oracle.On(l, func(o *bothOracle, _ *oracle.Call, e pd.Reserved) { o.reserved(e.Node, e.Effect) })
}

// bothLife records the pages and the pending Reserves of the engine for an incarnation of a node.
type bothLife struct {
	waiting []effects.Ticket // Reserves that the machine got; may include a few that are over
	has     int              // pages that the engine has reserved
	first   effects.Ticket   // the oldest pending Reserve when a peer last overtook a Reserve
	passed  int              // grants and reads that overtook the oldest Reserve
	rivals  int              // the largest number of peers that had a waiting request in that time
}

func (s *bothLife) startReply() { *s = bothLife{waiting: s.waiting[:0]} }

// both reports whether n prefills and decodes.
func both(n *world.Node) bool { return n.Sends() && n.Receives() }

// given records a Reserve when its machine receives the command.
func (or *bothOracle) given(n *world.Node, t effects.Ticket) {
	if both(n) {
		or.at(n).waiting = append(or.at(n).waiting, t)
	}
}

// ended records the end of a command, with which the engine may have given pages back.
func (or *bothOracle) ended(n *world.Node, e *effects.Deliver, c *pd.Command) {
	if !both(n) || e.Code != effects.OK {
		return
	}
	switch c.Body.(type) {
	case *ops.Release: // A Release may also be a conflicting command of the engine, which arrives after the put.
		reserve := &or.w.Commands[c.Target-1]
		or.at(n).has -= len(reserve.Pages) - reserve.Stored
	case *ops.Store:
		or.at(n).has -= len(c.Pages)
	}
}

// reserved counts the pages that the engine gets against the engine's share, and counts the Reserve as an overtake of
// each peer that has a waiting request.
func (or *bothOracle) reserved(n *world.Node, e *effects.Deliver) {
	if !both(n) {
		return
	}
	my := or.at(n)
	my.has += len(e.Pages)
	if or.judged(checkOwnShare); my.has > ownShare(n) {
		or.fail(checkOwnShare, "node %d reserves %d pages for ticket %d, and its engine has %d in all of the %d that it may "+
			"have",
			n.It(), len(e.Pages), oracle.Ticket(e.Ticket), my.has, ownShare(n))
		return
	}
	queue := &or.all().queue
	for i := range queue.at(n).waiters {
		o := &queue.at(n).waiters[i]
		if o.fresh || !queue.first(n, i) || or.w.Failure != nil {
			continue
		}
		if counts, often := queue.passed(n, o); !counts {
			or.void(checkPassedByOwn)
		} else if or.judged(checkPassedByOwn); often {
			or.fail(checkPassedByOwn, "node %d lets request %d wait although %d grants and reserves went past it; %d are "+
				"allowed",
				n.It(), oracle.Message(o.request), o.overtaken, pd.Its(n).Cfg.BypassMax)
		}
	}
}

// ownShare returns how many pages the engine of a node may have.
func ownShare(n *world.Node) int {
	cfg := &pd.Its(n).Cfg
	return min(int(cfg.Pages), max(1, int(cfg.Pages)*int(cmp.Or(cfg.EngineSharePct, 50))/100))
}

// oldest returns the Reserve that has waited longest, and 0 if none waits.
func (or *bothOracle) oldest(n *world.Node) effects.Ticket {
	my := or.at(n)
	my.waiting = slices.DeleteFunc(my.waiting, func(t effects.Ticket) bool { return or.w.Commands[t-1].Over })
	if len(my.waiting) == 0 {
		return 0
	}
	return my.waiting[0]
}

// passing counts an overtake of the oldest pending Reserve, because a peer was served first. A Reserve that waits
// because of the engine's share was not overtaken.
func (or *bothOracle) passing(n *world.Node) {
	t := or.oldest(n)
	if t == 0 {
		return
	}
	my := or.at(n)
	if my.first != t {
		my.first, my.passed, my.rivals = t, 0, 0
	}
	s := pd.StatsOf(n)
	if my.has+int(or.w.Commands[t-1].Count) > ownShare(n) || or.w.Flows.Have(&s) || or.written(n) {
		or.void(checkOwnPassed)
		return
	}
	or.judged(checkOwnPassed)
	my.rivals = max(my.rivals, or.all().queue.heads(n)+1) // The peer that is served counts as well.
	if my.passed++; my.passed == int(pd.Its(n).Cfg.BypassMax) && or.all().queue.heads(n) > 1 {
		pd.Met(&or.w.Result, pd.EngineKeptFor)
	}
	if my.passed > int(pd.Its(n).Cfg.BypassMax)+my.rivals {
		or.fail(checkOwnPassed, "node %d lets ticket %d of its engine wait for pages although peers were served %d times "+
			"before it; %d are allowed", n.It(), oracle.Ticket(t), my.passed, pd.Its(n).Cfg.BypassMax)
	}
}

// waits returns the oldest pending Reserve after a step, and whether the pages for that Reserve are free.
func (or *bothOracle) waits(n *world.Node, s *rank.Stats) (t effects.Ticket, inVain bool) {
	if !both(n) {
		return 0, false
	}
	if t = or.oldest(n); t == 0 {
		return 0, false
	}
	count, room := int(or.w.Commands[t-1].Count), s.PagesFree
	if n.Caches {
		room += s.PagesEvictable
	}
	if or.at(n).has+count > ownShare(n) || or.w.Flows.Have(s) || or.written(n) {
		or.void(checkOwnWaits)
		return t, false
	}
	or.judged(checkOwnWaits)
	return t, count <= room
}

// written reports whether pages of the engine's share are in use for chunks that peers write to this node. The pages
// are in use until there is proof that the peers no longer write.
func (or *bothOracle) written(n *world.Node) bool {
	for _, g := range n.Grants {
		if len(g.Shared) > 0 && standsUnder(n.Pool, g) {
			return true
		}
	}
	return false
}

// inVain fails the run, because a Reserve waits although the pages for that Reserve are free.
func (or *bothOracle) inVain(n *world.Node, s *rank.Stats, t effects.Ticket) {
	or.fail(checkOwnWaits, "node %d has %d pages free and lets ticket %d of its engine wait for %d",
		n.It(), s.PagesFree, oracle.Ticket(t), or.w.Commands[t-1].Count)
}
