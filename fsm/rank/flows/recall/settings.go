package recall

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
)

// Settings is the part of a rank's configuration that concerns recalls. A zero field takes its default.
type Settings struct {
	// Recalls: chunks at a decode node may be read back. A rank that puts sends queries, and a rank that receives
	// puts answers them.
	Recalls       bool
	RecallTimeout effects.Duration // the time limit of a Recall without Timeout; default 5 s
	// the limit of recalls in progress, and of leases given out for recalls; default 256
	RecallsMax uint32
}

// Fill replaces zero fields by their defaults.
func (s *Settings) Fill() {
	kernel.SetDefault(&s.RecallTimeout, 5*effects.Second)
	kernel.SetDefault(&s.RecallsMax, 256)
}

// Check returns an error if a setting is out of range.
func (s *Settings) Check() error {
	return kernel.CheckCounts(kernel.Count{Name: "RecallsMax", Value: s.RecallsMax})
}

// Asking returns the resources that a Source needs for recalls from the given number of peers. Each recall has a
// query, a read, a deadline and a deadline for its reply; each peer has a connection.
func (s *Settings) Asking(peers uint32) kernel.Need {
	most := int(s.RecallsMax)
	return kernel.Need{
		Deadlines: 2 * most,
		Limits:    effects.Limits{Sends: most + int(peers), Transfers: most, Commands: most},
	}
}

// Answering returns the resources that a Target needs: each lease has a deadline.
func (s *Settings) Answering() kernel.Need { return kernel.Need{Deadlines: int(s.RecallsMax)} }
