package deferred

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
)

// Settings are the part of a rank's configuration that is about offers kept for later. Zero means the default.
type Settings struct {
	OffersMax    uint32           // default 4096 offers kept for later
	LeadMin      effects.Duration // default 100 ms: for which an offer must still stand to be kept
	FetchTimeout effects.Duration // default 30 s: the longest that a Fetch takes, and one without Patience
}

// Fill puts defaults where nothing is said.
func (s *Settings) Fill() {
	kernel.Default(&s.OffersMax, 4096)
	kernel.Default(&s.LeadMin, 100*effects.Millisecond)
	kernel.Default(&s.FetchTimeout, 30*effects.Second)
}

// Check says what cannot work.
func (s *Settings) Check() error {
	return kernel.Countable(kernel.Count{Name: "OffersMax", Value: s.OffersMax})
}

// Need is that of offers: each has a deadline.
func (s *Settings) Need() kernel.Need { return kernel.Need{Deadlines: int(s.OffersMax)} }
