package store

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
)

// Settings are the part of a rank's configuration that is about keys. Zero means the default.
type Settings struct {
	Retention    Retention        // what becomes of a chunk that nobody expects or reads any more; default Consume
	ClaimTTL     effects.Duration // default 360 s: how long a chunk is kept for its request, from its landing
	ClaimsMax    uint32           // default 8 × Pages claims on chunks beyond the first on each
	LocationsMax uint32           // default 16 × BatchMax + 4 × Pages chunks of offers that are kept for later
}

// Fill puts defaults where nothing is said, for so many pages, and chunks of a batch.
func (s *Settings) Fill(pages, batch uint32) {
	kernel.Default(&s.ClaimTTL, 360*effects.Second)
	kernel.Default(&s.ClaimsMax, kernel.Clamped(8*uint64(pages)))
	kernel.Default(&s.LocationsMax, kernel.Clamped(16*uint64(batch)+4*uint64(pages)))
}

// Check says what cannot work.
func (s *Settings) Check() error {
	if !s.Retention.Known() {
		return fmt.Errorf("rank: Retention is %d: use store.Consume or store.Cache", s.Retention)
	}
	return kernel.Countable(kernel.Count{Name: "ClaimsMax", Value: s.ClaimsMax},
		kernel.Count{Name: "LocationsMax", Value: s.LocationsMax})
}

// Entries bounds the keys known: one for each page, each fill under way, and each location at a sender if there are
// any.
func (s *Settings) Entries(pages, batch uint32, locations bool) uint32 {
	n := 2*uint64(pages) + uint64(batch)
	if locations {
		n += uint64(s.LocationsMax)
	}
	return kernel.Clamped(n)
}
