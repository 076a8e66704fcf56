package memory

import (
	"cmp"
	"fmt"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
)

// Settings are the part of a rank's configuration that is about pages and grants. Zero means the default.
type Settings struct {
	Pages        uint32 // of the pool, which the engine fills or reads
	PoolKey      string // default pd_buffer_size: the key that says so, for refusals
	GrantsMax    uint32 // default 4096
	PeerSharePct uint32 // default 100: most of the pool granted to or quarantined for one peer
	// EngineSharePct is the most of the pool that our own engine may have reserved, in a rank of both sides.
	EngineSharePct uint32 // default 50
}

// Fill puts defaults where nothing is said.
func (s *Settings) Fill() {
	s.PoolKey = cmp.Or(s.PoolKey, "pd_buffer_size")
	kernel.Default(&s.GrantsMax, 4096)
	kernel.Default(&s.PeerSharePct, 100)
	kernel.Default(&s.EngineSharePct, 50)
}

// Check says what cannot work.
func (s *Settings) Check() error {
	switch {
	case s.Pages == 0:
		return fmt.Errorf("rank: Pages is 0: a pool needs at least one page")
	case s.PeerSharePct > 100:
		return fmt.Errorf("rank: PeerSharePct is %d: give 1 to 100", s.PeerSharePct)
	case s.EngineSharePct > 100:
		return fmt.Errorf("rank: EngineSharePct is %d: give 1 to 100", s.EngineSharePct)
	}
	return kernel.Countable(kernel.Count{Name: "Pages", Value: s.Pages},
		kernel.Count{Name: "GrantsMax", Value: s.GrantsMax})
}

// Need is that of grants: each has an end, may be revoked, and may be what we read for ourselves.
func (s *Settings) Need() kernel.Need {
	return kernel.Need{Deadlines: int(s.GrantsMax), Limits: effects.Limits{
		Revokes: int(s.GrantsMax), Transfers: int(s.GrantsMax),
	}}
}

// Share is so much of the pool, and a page at least.
func (s *Settings) Share(pct uint32) uint32 { return uint32(max(1, uint64(s.Pages)*uint64(pct)/100)) }
