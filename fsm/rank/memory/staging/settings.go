package staging

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
)

// Settings are the part of a rank's configuration that is about fetches. Zero means the default.
type Settings struct {
	// StagingPages of the pool are what fetches read into, two halves of a batch each: the pipeline's depth is half of
	// it.
	StagingPages uint32 // default Pages/8, at least 2
	FetchesMax   uint32 // default 256 fetches open
}

// Fill puts defaults where nothing is said, for so many pages.
func (s *Settings) Fill(pages uint32) {
	kernel.Default(&s.StagingPages, min(max(2, pages/8), pages))
	kernel.Default(&s.FetchesMax, 256)
}

// Check says what cannot work with so many pages.
func (s *Settings) Check(pages uint32) error {
	if s.StagingPages > pages {
		return fmt.Errorf("rank: StagingPages is %d of %d pages: give at most all of them", s.StagingPages, pages)
	}
	return kernel.Countable(kernel.Count{Name: "StagingPages", Value: s.StagingPages},
		kernel.Count{Name: "FetchesMax", Value: s.FetchesMax})
}

// Need is that of fetches: each has a deadline while it waits and one while it runs, one scatter, and a read for each
// staging page at the most.
func (s *Settings) Need() kernel.Need {
	return kernel.Need{Deadlines: 2 * int(s.FetchesMax), Limits: effects.Limits{
		Transfers: int(s.StagingPages), Scatters: int(s.FetchesMax), Commands: int(s.FetchesMax),
	}}
}
