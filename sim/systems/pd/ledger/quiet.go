package ledger

import (
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// What is judged here.
var (
	checkEmpty     = oracle.NewCheck("S17", "tables that should be empty")
	checkQuietFree = oracle.NewCheck("S5", "free pages when all is quiet")
)

// quietOracle judges what is left when nothing is under way any more.
type quietOracle struct{ judge }

// quiet checks that nothing is left in n's tables but ready chunks, links and what is remembered on purpose.
func (or *quietOracle) quiet(n *world.Node, when string) {
	w := or.w
	or.all().counts.recounted(n)
	or.judged(checkEmpty, checkQuietFree)
	s := pd.StatsOf(n)
	left := func(what string, count int) {
		if count != 0 && w.Failure == nil {
			or.fail(checkEmpty, "node %d has %d %s left %s", n.It(), count, what, when)
		}
	}
	if w.Healed { // A drain does not wait for a last word to a peer that is out of reach.
		left("puts", s.Puts)
	}
	left("gets", s.Gets)
	left("grants", s.Grants)
	left("pending requests", s.Waiters)
	left("reserves", s.Reserves)
	left("claims", s.Claims)
	left("fills", s.Fills)
	left("granted pages", s.PagesGranted)
	left("quarantined pages", s.PagesQuarantined)
	left("leased pages", s.PagesLent)
	left("host pages", s.HostTotal-s.HostFree)
	left("offers", s.Offers)
	left("remote locations", s.Locations)
	left("fetches", s.Fetches)
	left("staging pages", s.Staged)
	if w.Healed && w.Failure == nil {
		or.all().share.givenBack(n, true)
	}
	if free := s.PagesFree + s.Entries; free != s.PagesTotal && w.Failure == nil {
		or.fail(checkQuietFree, "node %d has %d pages free and %d ready of %d %s",
			n.It(), s.PagesFree, s.Entries, s.PagesTotal, when)
	}
	or.all().cache.rests(n, &s)
}
