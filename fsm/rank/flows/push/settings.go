package push

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/protocol"
)

// GrantSettings is the part of a rank's configuration that is about who is pushed to. Zero means the default.
type GrantSettings struct {
	ReplyForm        protocol.ReplyForm
	TrustUncommitted bool // readable without commit: exempts such chunks from S1; needs Bearer
	// Residual bounds how long after its deadline an unbound plain sender's write may still land on a leased plane; an
	// assumption by name (M5).
	Residual effects.Duration // default 1 s
}

// Fill puts defaults where nothing is said.
func (s *GrantSettings) Fill() { kernel.Default(&s.Residual, effects.Second) }

// Check says what cannot work.
func (s *GrantSettings) Check(bearer bool) error {
	if s.TrustUncommitted && !bearer {
		return fmt.Errorf("rank: TrustUncommitted without Bearer: on these planes no byte of a sender without our " +
			"extensions arrives, so its chunks would be whatever the pages held before; leave TrustUncommitted out")
	}
	return nil
}
