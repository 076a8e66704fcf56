package staging

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
)

// Settings is the part of a rank's configuration that concerns fetches. Zero means the default.
type Settings struct {
	// StagingPages is the number of pool pages that fetches may use for staging, in two halves. The depth of the
	// pipeline is half of this number. Default Pages/8, at least 2.
	StagingPages uint32
	FetchesMax   uint32 // limit of open fetches; default 256
}

// Fill sets the defaults of fields that are zero, for the number of pages in the pool.
func (s *Settings) Fill(pages uint32) {
	kernel.SetDefault(&s.StagingPages, min(max(2, pages/8), pages))
	kernel.SetDefault(&s.FetchesMax, 256)
}

// Check returns an error if a setting cannot work with this number of pages.
func (s *Settings) Check(pages uint32) error {
	if s.StagingPages > pages {
		return fmt.Errorf("rank: StagingPages is %d of %d pages: give at most all of them", s.StagingPages, pages)
	}
	return kernel.CheckCounts(kernel.Count{Name: "StagingPages", Value: s.StagingPages},
		kernel.Count{Name: "FetchesMax", Value: s.FetchesMax})
}

// Need returns the resources that fetches need: each has a deadline while it waits and another while it runs, one
// scatter, and at most one read for each staging page.
func (s *Settings) Need() kernel.Need {
	return kernel.Need{Deadlines: 2 * int(s.FetchesMax), Limits: effects.Limits{
		Transfers: int(s.StagingPages), Scatters: int(s.FetchesMax), Commands: int(s.FetchesMax),
	}}
}
