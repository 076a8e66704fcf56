package link

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
)

// Settings is the part of a rank's configuration that concerns peers. A zero value means the default.
type Settings struct {
	LocalID string // LMCache's local_id, sent in handshakes
	// DriftPPM bounds how far the clocks of two nodes drift apart, in millionths, for leases on leased planes (M4).
	DriftPPM uint32 // default 1000
	// UnfitBackoff is the delay before a receiver of another kind is tried again. A hello may disable such a receiver.
	UnfitBackoff effects.Duration // default 300 s, and never less than BackoffMax
	// BreakerTTL is how long puts avoid a receiver that had no memory, by default 2 s. If the value is negative, puts
	// are not held back.
	BreakerTTL effects.Duration
	PeersMax   uint32 // default 256
}

// Fill sets defaults. UnfitBackoff is at least the longest delay between attempts.
func (s *Settings) Fill(backoffMax effects.Duration) {
	kernel.SetDefault(&s.DriftPPM, 1000)
	kernel.SetDefault(&s.UnfitBackoff, 300*effects.Second)
	s.UnfitBackoff = max(s.UnfitBackoff, backoffMax)
	kernel.SetDefault(&s.BreakerTTL, 2*effects.Second)
	kernel.SetDefault(&s.PeersMax, 256)
}

// Check returns an error for values that cannot work.
func (s *Settings) Check() error {
	return kernel.CheckCounts(kernel.Count{Name: "PeersMax", Value: s.PeersMax})
}

// Need returns the timers and completions that peers need. Each peer has a handshake, two lanes, and what former
// attempts left outstanding. Each peer that offers pages has an import, two connections for notifications, one
// connection for renewals, and one more renewal connection of the peer that had its place before.
func (s *Settings) Need(leftovers uint32) kernel.Need {
	return kernel.Need{
		Deadlines: 5 * int(s.PeersMax),
		Limits:    effects.Limits{Sends: CompletionsMax(s.PeersMax, leftovers) + 7*int(s.PeersMax)},
	}
}
