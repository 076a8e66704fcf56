package bundle

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/protocol"
)

// Settings is the part of a rank's configuration that concerns chunks with a page for each layer. Zero means the
// default.
type Settings struct {
	// Layers is the number of layers of a chunk. Then Layout describes one layer, and each layer has a page of its own.
	// 0: a page has a whole chunk.
	Layers uint32
	// WholeChunks says that all layers of a chunk must come at once.
	WholeChunks bool
	// BundlesMax is the limit of chunks that are being gathered at the same time. By default the limit is the number of
	// chunks that the pool has pages for, and a peer's share of the pages bounds the peer's bundles as well.
	BundlesMax   uint32
	byPages      bool
	BundleTTL    effects.Duration // how long a bundle lasts without a further layer; default Lease
	BundleMaxTTL effects.Duration // how long a bundle lasts in all; default 10 × BundleTTL
}

// Fill sets the defaults of fields that are zero.
func (s *Settings) Fill(lease effects.Duration, pages uint32) {
	if s.BundlesMax == 0 {
		s.BundlesMax, s.byPages = max(1, pages/max(1, s.Layers)), true
	}
	kernel.SetDefault(&s.BundleTTL, lease)
	kernel.SetDefault(&s.BundleMaxTTL, 10*s.BundleTTL)
}

// ByPages reports whether the limit of bundles is the number that the pool has pages for.
func (s *Settings) ByPages() bool { return s.byPages }

// Check returns an error if a setting cannot work.
func (s *Settings) Check() error {
	if s.Layers > protocol.LayersMax {
		return fmt.Errorf("rank: Layers is %d: give at most %d", s.Layers, protocol.LayersMax)
	}
	return kernel.CheckCounts(kernel.Count{Name: "BundlesMax", Value: s.BundlesMax})
}

// Need returns the resources that bundles need: a deadline for each.
func (s *Settings) Need() kernel.Need {
	if s.Layers == 0 {
		return kernel.Need{}
	}
	return kernel.Need{Deadlines: int(s.BundlesMax)}
}
