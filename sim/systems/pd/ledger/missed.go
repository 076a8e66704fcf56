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
	perhaps bool // it was none, or is one again, or is forgotten for newer ones
}

// over notes that a promise ended as its time was over. A machine remembers as many as it may have claims beyond the
// first on their pages, and forgets the oldest for a new one: what was once among more than that is uncertain from then
// on, though fewer are left when a reader comes. For example with room for six: seven end, two of them are made again,
// and the reader of the oldest is told that nothing is known of it.
func (or *claimedOracle) over(n *world.Node, x ended) {
	my := or.at(n)
	my.ended = append(my.ended, x)
	surplus := len(my.ended) - cmp.Or(int(pd.Its(n).Cfg.ClaimsMax), 8*int(pd.Its(n).Cfg.Pages))
	if surplus <= 0 {
		return
	}
	newest := my.ended[surplus-1].at // Which of one instant go first is the machine's affair.
	for i := range my.ended {
		if e := &my.ended[i]; e.at <= newest {
			e.perhaps = true
		}
	}
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
