package rank

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/link"
)

// countMax bounds every count of a configuration, and tablesMax what they come to: tables number their places with 31 bits, and
// the bounds of tables are sums and products of counts. A rank with more than this would fit no machine.
const (
	countMax  = 1 << 28
	tablesMax = 1<<31 - 1
)

// clamped is a count that follows from others.
func clamped(n uint64) uint32 { return uint32(min(n, countMax)) }

// countable refuses counts that would not fit the numbers of tables.
func (c *Config) countable() error {
	for _, f := range []struct {
		name  string
		value uint32
	}{
		{"Pages", c.Pages}, {"HostPages", c.HostPages}, {"StagingPages", c.StagingPages}, {"BatchMax", c.BatchMax}, {"PutsMax", c.PutsMax},
		{"RequestsMax", c.RequestsMax}, {"PeersMax", c.PeersMax}, {"WaitersMax", c.WaitersMax}, {"GrantsMax", c.GrantsMax},
		{"GetsMax", c.GetsMax}, {"FetchesMax", c.FetchesMax}, {"OffersMax", c.OffersMax}, {"PlacesMax", c.PlacesMax},
		{"ClaimsMax", c.ClaimsMax}, {"ReservesMax", c.ReservesMax}, {"RequestIDMax", c.RequestIDMax},
		{"RecallsMax", c.RecallsMax},
	} {
		if f.value > countMax {
			return fmt.Errorf("rank: %s is %d: give at most %d", f.name, f.value, countMax)
		}
	}
	// With counts of 28 bits none of these sums ends a number of 64.
	limits := c.limits()
	if deadlines := c.deadlinesMax(); deadlines > tablesMax || outstanding(limits) > tablesMax || limits.Commands > tablesMax {
		return fmt.Errorf("rank: the bounds of this configuration come to %d deadlines, %d outstanding effects and %d commands: give smaller ones, so that none is more than %d",
			deadlines, outstanding(limits), limits.Commands, tablesMax)
	}
	return nil
}

// outstanding is the most completions that are awaited at a time.
func outstanding(l effects.Limits) int { return l.Sends + l.Transfers + l.Copies + l.Scatters }

// limits are the rank's credits.
func (c *Config) limits() effects.Limits {
	// A sender's pushes, and a receiver's reads. A rank of one side is given the larger of both, whichever it has.
	pushes, reads := int(c.PutsMax), int(c.GrantsMax)+int(c.StagingPages)
	transfers := max(pushes, reads)
	if c.Role == RoleBoth {
		transfers = pushes + reads
	}
	transfers += c.asksMax()
	return effects.Limits{
		Transfers: transfers,
		// Each stores into a host page at least, that no other stores into.
		Copies:   min(int(c.Tuning.CopiesMax)*int(c.PutsMax), int(c.HostPages)),
		Scatters: int(c.FetchesMax),
		// Each put has at most one; each peer a handshake, two lanes and what former attempts left over; each sender that
		// offers an import, two connections on which it is told, and one on which it is asked.
		Sends: int(c.PutsMax) + link.Owed(c.PeersMax, c.Tuning.LeftoversMax) + 6*int(c.PeersMax) + 8 + c.asksMax() +
			int(c.asksPeers()),
		Revokes:       int(c.GrantsMax),
		Commands:      int(c.PutsMax) + int(c.GetsMax) + int(c.FetchesMax) + int(c.ReservesMax) + c.asksMax() + 1,
		PagesPerBatch: int(c.BatchMax),
	}
}
