package registrar

import (
	"fmt"

	"github.com/kvferry/kvferry/fsm/rank/kernel"
)

// Settings are the part of a rank's configuration that is about directories. Zero: it knows none.
type Settings struct {
	// Directory is how they are told and asked. Its owners, its seed and the worker's incarnation are the rank's.
	Directory Config
	Journal   uint32 // default 8192 changes of the store, beyond which a directory is told all that there is
}

// Knows says whether there is any.
func (s *Settings) Knows() bool { return len(s.Directory.Directories) > 0 }

// DefaultSettings have no directory, and what goes for those that are added.
func DefaultSettings() Settings { return Settings{Directory: Default(), Journal: 8192} }

// Fill puts defaults where nothing is said.
func (s *Settings) Fill() {
	if s.Knows() {
		kernel.Default(&s.Journal, DefaultSettings().Journal)
	}
}

// Check says what cannot work for a rank that shares, or does not.
func (s *Settings) Check(shares bool) error {
	switch {
	case !s.Knows() && s.Journal > 0:
		return fmt.Errorf("rank: Journal is %d without a directory: list one, or give 0", s.Journal)
	case !s.Knows():
		return nil
	case !shares:
		return fmt.Errorf("rank: Directories are %d without Shares: there is nothing to tell them; set Shares, or list none",
			len(s.Directory.Directories))
	}
	if err := s.Directory.Check(); err != nil {
		return err
	}
	return kernel.Countable(kernel.Count{Name: "Journal", Value: s.Journal})
}

// Need is what of it may be outstanding at a time, and Conns how many connections are open.
func (s *Settings) Need() kernel.Need { return s.Directory.Need().And(s.Directory.Asks()) }

// Conns is how many connections are open at a time.
func (s *Settings) Conns() int { return s.Directory.Conns() }
