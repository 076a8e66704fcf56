package store

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
)

// Settings is the part of a rank's configuration that concerns keys. Zero means the default.
type Settings struct {
	Retention    Retention        // the policy for a chunk that no request expects and no reader uses; default Consume
	ClaimTTL     effects.Duration // how long a chunk is kept for its request, from its landing; default 360 s
	ClaimsMax    uint32           // limit of claims beyond the first on each chunk; default 8 × Pages
	LocationsMax uint32           // limit of chunks of deferred offers; default 16 × BatchMax + 4 × Pages
}

// Fill sets the defaults of fields that are zero, for the number of pages and the limit of chunks in a batch.
func (s *Settings) Fill(pages, batch uint32) {
	kernel.SetDefault(&s.ClaimTTL, 360*effects.Second)
	kernel.SetDefault(&s.ClaimsMax, kernel.ClampCount(8*uint64(pages)))
	kernel.SetDefault(&s.LocationsMax, kernel.ClampCount(16*uint64(batch)+4*uint64(pages)))
}

// Check returns an error if a setting cannot work.
func (s *Settings) Check() error {
	if !s.Retention.IsKnown() {
		return fmt.Errorf("rank: Retention is %d: use store.Consume or store.Cache", s.Retention)
	}
	return kernel.CheckCounts(kernel.Count{Name: "ClaimsMax", Value: s.ClaimsMax},
		kernel.Count{Name: "LocationsMax", Value: s.LocationsMax})
}

// Entries returns the limit of known keys: one for each page, one for each fill in flight, and, if there are remote
// locations, one for each of these.
func (s *Settings) Entries(pages, batch uint32, locations bool) uint32 {
	n := 2*uint64(pages) + uint64(batch)
	if locations {
		n += uint64(s.LocationsMax)
	}
	return kernel.ClampCount(n)
}
