package push

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/protocol"
)

// GrantSettings is the part of a rank's configuration that concerns receivers of pushes. A zero field takes the
// default.
type GrantSettings struct {
	ReplyForm        protocol.ReplyForm
	TrustUncommitted bool // chunks are readable without a commit: an exemption from S1; needs Bearer
	// Residual bounds how long after its deadline a write of a sender without our extensions may still land on a
	// leased plane. Residual is an assumption by name (M5). The default is 1 s.
	Residual effects.Duration
}

// Fill replaces zero fields by their defaults.
func (s *GrantSettings) Fill() { kernel.SetDefault(&s.Residual, effects.Second) }

// Check returns an error if the settings contradict each other. bearer reports whether the planes serve peers
// without our extensions.
func (s *GrantSettings) Check(bearer bool) error {
	if s.TrustUncommitted && !bearer {
		return fmt.Errorf("rank: TrustUncommitted without Bearer: on these planes no byte of a sender without our " +
			"extensions arrives, so its chunks would be whatever the pages held before; leave TrustUncommitted out")
	}
	return nil
}
