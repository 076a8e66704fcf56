package link

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
)

// Settings are the part of a rank's configuration that is about peers. Zero means the default.
type Settings struct {
	LocalID string // LMCache's local_id, sent in handshakes
	// DriftPPM bounds how far clocks of two nodes run apart, in millionths, for leases on leased planes.
	DriftPPM uint32 // default 1000
	// UnfitBackoff is how long a receiver of another kind is left alone. Asking may harm it.
	UnfitBackoff effects.Duration // default 300 s, and never less than BackoffMax
	BreakerTTL   effects.Duration // default 2 s: how long a receiver that had no memory is left alone; negative: it is not
	PeersMax     uint32           // default 256
}

// Fill puts defaults where nothing is said. Nobody is left alone for less than the longest time between tries.
func (s *Settings) Fill(backoffMax effects.Duration) {
	kernel.Default(&s.DriftPPM, 1000)
	kernel.Default(&s.UnfitBackoff, 300*effects.Second)
	s.UnfitBackoff = max(s.UnfitBackoff, backoffMax)
	kernel.Default(&s.BreakerTTL, 2*effects.Second)
	kernel.Default(&s.PeersMax, 256)
}

// Check says what cannot work.
func (s *Settings) Check() error {
	return kernel.Countable(kernel.Count{Name: "PeersMax", Value: s.PeersMax})
}

// Need is that of peers: each has a handshake, two lanes and what former attempts left over; each that offers an
// import, two connections on which it is told, and one on which it is asked, beside one more on which a peer that had
// its place before was.
func (s *Settings) Need(leftovers uint32) kernel.Need {
	return kernel.Need{
		Deadlines: 5 * int(s.PeersMax),
		Limits:    effects.Limits{Sends: Owed(s.PeersMax, leftovers) + 7*int(s.PeersMax)},
	}
}
