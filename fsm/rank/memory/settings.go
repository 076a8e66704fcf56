package memory

import (
	"cmp"
	"fmt"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
)

// Settings are the part of a rank's configuration about pages and grants. A zero value stands for the default.
type Settings struct {
	Pages        uint32 // the number of pages of the pool that the engine fills or reads; must not be 0
	PoolKey      string // default pd_buffer_size: the configuration key of the pool's size, for refusals
	GrantsMax    uint32 // default 4096: the limit of grants at a time
	PeerSharePct uint32 // default 100: the limit of the pool for one peer, granted or in quarantine, in percent
	// OriginSharePct is the limit of the pool for all peers with one Origin, including pages that landed, while a peer with
	// another Origin is present, in percent; at least PeerSharePct.
	OriginSharePct uint32 // default 75, or PeerSharePct if that is more
	// TenantSharePct is the limit of the pool for the chunks of one tenant, including pages that landed and reserved pages,
	// while another tenant has pages or waits for some, in percent.
	TenantSharePct uint32 // default 100: no limit
	// EngineSharePct is the limit of the pool that this rank's engine may have reserved, in a rank of both roles, in
	// percent.
	EngineSharePct uint32 // default 50
}

// Fill replaces zero values by the defaults.
func (s *Settings) Fill() {
	s.PoolKey = cmp.Or(s.PoolKey, "pd_buffer_size")
	kernel.SetDefault(&s.GrantsMax, 4096)
	kernel.SetDefault(&s.PeerSharePct, 100)
	kernel.SetDefault(&s.OriginSharePct, max(s.PeerSharePct, 75))
	kernel.SetDefault(&s.TenantSharePct, 100)
	kernel.SetDefault(&s.EngineSharePct, 50)
}

// Check returns an error that names the first setting with a value that cannot work.
func (s *Settings) Check() error {
	switch {
	case s.Pages == 0:
		return fmt.Errorf("rank: Pages is 0: a pool needs at least one page")
	case s.PeerSharePct > 100:
		return fmt.Errorf("rank: PeerSharePct is %d: give 1 to 100", s.PeerSharePct)
	case s.OriginSharePct < s.PeerSharePct || s.OriginSharePct > 100:
		return fmt.Errorf("rank: OriginSharePct is %d: give %d (PeerSharePct) to 100", s.OriginSharePct, s.PeerSharePct)
	case s.TenantSharePct > 100:
		return fmt.Errorf("rank: TenantSharePct is %d: give 1 to 100", s.TenantSharePct)
	case s.EngineSharePct > 100:
		return fmt.Errorf("rank: EngineSharePct is %d: give 1 to 100", s.EngineSharePct)
	}
	return kernel.CheckCounts(kernel.Count{Name: "Pages", Value: s.Pages},
		kernel.Count{Name: "GrantsMax", Value: s.GrantsMax})
}

// Need returns what the grants may have outstanding at a time: each grant has a deadline, may be revoked, and may be
// the target of a read by this rank. If verifies is true, the pages of each grant may be compared with their checksums.
func (s *Settings) Need(verifies bool) kernel.Need {
	n := kernel.Need{Deadlines: int(s.GrantsMax), Limits: effects.Limits{
		Revokes: int(s.GrantsMax), Transfers: int(s.GrantsMax),
	}}
	if verifies {
		n.Verifies = int(s.GrantsMax)
	}
	return n
}

// Share returns pct percent of the pages of the pool, but at least one page.
func (s *Settings) Share(pct uint32) uint32 { return shareOf(s.Pages, pct) }
