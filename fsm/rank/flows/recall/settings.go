package recall

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
)

// Settings are the part of a rank's configuration that is about recalls. Zero means the default.
type Settings struct {
	// Recalls: what lies at a decode node may be read back. Who puts recalls, who lets puts in answers.
	Recalls       bool
	RecallTimeout effects.Duration // default 5 s: a recall that says no patience
	RecallsMax    uint32           // default 256: in progress, and leases out for recalls of others
}

// Fill puts defaults where nothing is said.
func (s *Settings) Fill() {
	kernel.Default(&s.RecallTimeout, 5*effects.Second)
	kernel.Default(&s.RecallsMax, 256)
}

// Check says what cannot work.
func (s *Settings) Check() error {
	return kernel.Countable(kernel.Count{Name: "RecallsMax", Value: s.RecallsMax})
}

// Asking is the need of who recalls, from so many peers: each recall has a question, a read, its deadline and its
// answer's, each peer a connection.
func (s *Settings) Asking(peers uint32) kernel.Need {
	most := int(s.RecallsMax)
	return kernel.Need{
		Deadlines: 2 * most,
		Limits:    effects.Limits{Sends: most + int(peers), Transfers: most, Commands: most},
	}
}

// Answering is the need of who is recalled from: each lease has an end.
func (s *Settings) Answering() kernel.Need { return kernel.Need{Deadlines: int(s.RecallsMax)} }
