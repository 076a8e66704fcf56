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

// A reader that misses a chunk is told that the chunk lapsed, if the chunk was kept for the reader's request, or for no
// named request, until the time was over, and the machine still has the record. Otherwise the chunk is reported as not
// found. Each promise is followed individually.

var checkMissed = oracle.NewCheck("S20", "gets of what was kept until its time was over")

// ended is a promise that has expired.
type ended struct {
	chunk   uint32
	request uint64 // 0: the promise was for no named request
	at      effects.Time
	perhaps bool // there may have been no promise, the promise may have been made again, or the record may be gone
}

// over records that a promise has expired. A machine has room for as many such records as for claims beyond the first
// claim on a page, and drops the oldest records for newer records. From then on the promises of the oldest records are
// uncertain, even if fewer records are left when a reader comes. Example with room for six records: seven promises
// expire, and two of the promises are made again. A reader that misses the chunk of the oldest promise is told that the
// chunk is not found.
func (or *claimedOracle) over(n *world.Node, x ended) {
	my := or.at(n)
	my.ended = append(my.ended, x)
	surplus := len(my.ended) - cmp.Or(int(pd.Its(n).Cfg.ClaimsMax), 8*int(pd.Its(n).Cfg.Pages))
	if surplus <= 0 {
		return
	}
	newest := my.ended[surplus-1].at // The machine chooses which records of one instant it drops first.
	for i := range my.ended {
		if e := &my.ended[i]; e.at <= newest {
			e.perhaps = true
		}
	}
}

// renewed drops the record that a promise has expired, because the promise is made again.
func (my *claimedLife) renewed(chunk uint32, request uint64, sure bool) {
	my.ended = slices.DeleteFunc(my.ended, func(x ended) bool { return sure && x.chunk == chunk && x.request == request })
	for i := range my.ended {
		if x := &my.ended[i]; x.chunk == chunk && x.request == request {
			x.perhaps = true
		}
	}
}

// missed checks the code with which a Get reports the first missing chunk (S20).
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
