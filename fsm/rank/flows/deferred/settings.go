package deferred

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
)

// Settings is the part of a rank's configuration that concerns offers kept for later. A zero field takes the
// default.
type Settings struct {
	OffersMax uint32 // the limit of kept offers; default 4096
	// LeadMin is the time that an offer's lease must still last for the offer to be kept; default 100 ms.
	LeadMin      effects.Duration
	FetchTimeout effects.Duration // the longest time of a Fetch, and the time of one without Timeout; default 30 s
}

// Fill replaces zero fields by their defaults.
func (s *Settings) Fill() {
	kernel.SetDefault(&s.OffersMax, 4096)
	kernel.SetDefault(&s.LeadMin, 100*effects.Millisecond)
	kernel.SetDefault(&s.FetchTimeout, 30*effects.Second)
}

// Check returns an error if a setting is out of range.
func (s *Settings) Check() error {
	return kernel.CheckCounts(kernel.Count{Name: "OffersMax", Value: s.OffersMax})
}

// Need returns the resources that kept offers need: each has a deadline.
func (s *Settings) Need() kernel.Need { return kernel.Need{Deadlines: int(s.OffersMax)} }
