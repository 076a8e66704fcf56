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

// In a node of both sides its engine and its peers take pages of one pool, and wait for them in one line (rule M9): the
// engine's oldest Reserve stands in it beside the first request of each peer. queue.go judges between peers, this
// between them and the engine.

// What is judged here.
var (
	checkOwnShare    = oracle.NewCheck("S18", "shares of engines")
	checkOwnPassed   = oracle.NewCheck("L7", "reserves passed by peers")
	checkPassedByOwn = oracle.NewCheck("L7", "requests passed by engines")
	checkOwnWaits    = oracle.NewCheck("L7", "reserves that wait for free pages")
)

// bothOracle judges between engines and peers.
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

type bothLife struct {
	waiting []effects.Ticket // reserves that the machine got, but for some that are over
	has     int              // pages that the engine has reserved
	first   effects.Ticket   // the oldest that waits, when it was passed last
	passed  int              // grants and reads that went past it since it is the oldest
	rivals  int              // the most peers of whom somebody waited then
}

func (s *bothLife) empty() { *s = bothLife{waiting: s.waiting[:0]} }

func both(n *world.Node) bool { return n.Sends() && n.Receives() }

// given notes a Reserve as its machine gets it.
func (or *bothOracle) given(n *world.Node, t effects.Ticket) {
	if both(n) {
		or.at(n).waiting = append(or.at(n).waiting, t)
	}
}

// ended notes the end of a command, by which the engine may have given pages back.
func (or *bothOracle) ended(n *world.Node, e *effects.Deliver, c *pd.Command) {
	if !both(n) || e.Code != effects.OK {
		return
	}
	switch c.Body.(type) {
	case *ops.Release: // One that came early contradicts its put, and may come after it.
		reserve := &or.w.Commands[c.Target-1]
		or.at(n).has -= len(reserve.Pages) - reserve.Stored
	case *ops.Store:
		or.at(n).has -= len(c.Pages)
	}
}

// reserved counts what the engine gets, against its share, and against each peer of whom somebody waits: the engine
// goes past it.
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

// ownShare is how many pages the engine of a node may have.
func ownShare(n *world.Node) int {
	cfg := &pd.Its(n).Cfg
	return min(int(cfg.Pages), max(1, int(cfg.Pages)*int(cmp.Or(cfg.EngineSharePct, 50))/100))
}

// oldest is the Reserve that waits longest; 0 if none does.
func (or *bothOracle) oldest(n *world.Node) effects.Ticket {
	my := or.at(n)
	my.waiting = slices.DeleteFunc(my.waiting, func(t effects.Ticket) bool { return or.w.Commands[t-1].Over })
	if len(my.waiting) == 0 {
		return 0
	}
	return my.waiting[0]
}

// passing counts, against the Reserve that waits longest, that a peer was served before it. One that waits for the
// engine's share was not passed.
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
	my.rivals = max(my.rivals, or.all().queue.heads(n)+1) // The one that is served is one.
	if my.passed++; my.passed == int(pd.Its(n).Cfg.BypassMax) && or.all().queue.heads(n) > 1 {
		pd.Met(&or.w.Result, pd.EngineKeptFor)
	}
	if my.passed > int(pd.Its(n).Cfg.BypassMax)+my.rivals {
		or.fail(checkOwnPassed, "node %d lets ticket %d of its engine wait for pages although peers were served %d times "+
			"before it; %d are allowed", n.It(), oracle.Ticket(t), my.passed, pd.Its(n).Cfg.BypassMax)
	}
}

// waits looks, after a step, at the Reserve that waits longest: whether one does, and whether its pages are free.
func (or *bothOracle) waits(n *world.Node, s *rank.Stats) (t effects.Ticket, inVain bool) {
	if !both(n) {
		return 0, false
	}
	if t = or.oldest(n); t == 0 {
		return 0, false
	}
	count, room := int(or.w.Commands[t-1].Count), s.PagesFree
	if n.Caches {
		room += s.Spare
	}
	if or.at(n).has+count > ownShare(n) || or.w.Flows.Have(s) || or.written(n) {
		or.void(checkOwnWaits)
		return t, false
	}
	or.judged(checkOwnWaits)
	return t, count <= room
}

// written says whether pages of the engine's share are for what peers write of what they have: until it is proven that
// they do so no more.
func (or *bothOracle) written(n *world.Node) bool {
	for _, g := range n.Grants {
		if len(g.Shared) > 0 && standsUnder(n.Pool, g) {
			return true
		}
	}
	return false
}

// inVain fails because nobody who waits has to.
func (or *bothOracle) inVain(n *world.Node, s *rank.Stats, t effects.Ticket) {
	or.fail(checkOwnWaits, "node %d has %d pages free and lets ticket %d of its engine wait for %d",
		n.It(), s.PagesFree, oracle.Ticket(t), or.w.Commands[t-1].Count)
}
