package ledger

import (
	"cmp"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// Who misses a chunk is told that it was here for that long in vain, if it was kept for that request, or for nobody by
// name, and is remembered: and else that it is not found. Each promise is followed by itself.

var checkMissed = oracle.NewCheck("S20", "gets of what was kept until its time was over")

// An ended is a promise whose time was over.
type ended struct {
	chunk   uint32
	request uint64 // 0: it told none
	at      effects.Time
	perhaps bool // it was none, or is one again
}

// renewed forgets that a promise had ended: it is made again.
func (my *claimedLife) renewed(chunk uint32, request uint64, sure bool) {
	my.ended = slices.DeleteFunc(my.ended, func(x ended) bool { return sure && x.chunk == chunk && x.request == request })
	for i := range my.ended {
		if x := &my.ended[i]; x.chunk == chunk && x.request == request {
			x.perhaps = true
		}
	}
}

// missed checks what a reader is told of the first chunk that it misses.
func (or *claimedOracle) missed(n *world.Node, e *effects.Deliver, c *pd.Command) {
	j := &or.w.Jobs[c.Job]
	told := unknown(e.Code) || e.Code == effects.Lapsed
	if c.Want != plan.WantGet || !told || j.After(e.Hits) >= len(j.Ids) || n.Draining || n.Leaving || !or.exact(n) {
		return
	}
	my, now, chunk, request := or.at(n), or.w.Clock(n), j.Ids[j.After(e.Hits)], requestOf(j.Name)
	ever, sure := false, false
	for _, x := range my.ended {
		if x.chunk == chunk && (x.request == request || x.request == 0 || request == 0) {
			over := x.at.Add(pd.Its(n).Cfg.ClaimTTL)
			ever, sure = ever || now <= over, sure || now < over && !x.perhaps
		}
	}
	// As many are remembered as there may be claims beyond the first on their pages.
	if most := cmp.Or(int(pd.Its(n).Cfg.ClaimsMax), 8*int(pd.Its(n).Cfg.Pages)); len(my.ended) > most {
		or.void(checkMissed)
		return
	}
	or.judged(checkMissed)
	switch {
	case unknown(e.Code) && sure:
		or.fail(checkMissed, "node %d ends ticket %d (get) as %s; chunk %d was kept until its time was over",
			n.It(), oracle.Ticket(e.Ticket), e.Code, oracle.Key(chunk))
	case e.Code == effects.Lapsed && !ever:
		or.fail(checkMissed, "node %d ends ticket %d (get) as lapsed; no promise of chunk %d to it was ever over, or lately",
			n.It(), oracle.Ticket(e.Ticket), oracle.Key(chunk))
	}
}
