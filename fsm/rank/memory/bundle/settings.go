package bundle

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/protocol"
)

// Settings are the part of a rank's configuration that is about chunks whose layers have pages of their own. Zero means
// the default.
type Settings struct {
	// Layers of a chunk: Layout is that of one, and each has a page of its own. 0: a page has a whole chunk.
	Layers uint32
	// WholeChunks: layers are not taken one by one, but all of a chunk at once.
	WholeChunks bool
	// BundlesMax is how many chunks of which layers are coming there may be at a time. Default: as many as the pool has
	// pages for, and a peer's share of pages is its share of them.
	BundlesMax uint32
	byPages    bool
	BundleTTL  effects.Duration // default Lease: how long one stands without a layer more
	BundleMost effects.Duration // default 10 × BundleTTL: how long one stands at all
}

// Fill puts defaults where nothing is said.
func (s *Settings) Fill(lease effects.Duration, pages uint32) {
	if s.BundlesMax == 0 {
		s.BundlesMax, s.byPages = max(1, pages/max(1, s.Layers)), true
	}
	kernel.Default(&s.BundleTTL, lease)
	kernel.Default(&s.BundleMost, 10*s.BundleTTL)
}

// ByPages says that as many bundles are allowed as the pool has pages for.
func (s *Settings) ByPages() bool { return s.byPages }

// Check says what cannot work.
func (s *Settings) Check() error {
	if s.Layers > protocol.LayersMax {
		return fmt.Errorf("rank: Layers is %d: give at most %d", s.Layers, protocol.LayersMax)
	}
	return kernel.Countable(kernel.Count{Name: "BundlesMax", Value: s.BundlesMax})
}

// Need is that of bundles: each has an end.
func (s *Settings) Need() kernel.Need {
	if s.Layers == 0 {
		return kernel.Need{}
	}
	return kernel.Need{Deadlines: int(s.BundlesMax)}
}
