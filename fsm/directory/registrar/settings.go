package registrar

import (
	"fmt"

	"github.com/kvferry/kvferry/fsm/rank/kernel"
)

// Settings are the part of a rank's configuration that concerns directories. The zero value configures no
// directories.
type Settings struct {
	// Directory configures the registrar and the lookups. The rank sets the owners, the seed and the worker's
	// incarnation.
	Directory Config
	// Journal is the number of changes of the store that the journal keeps; default 8192. A directory that is further
	// behind receives a full sync.
	Journal uint32
}

// UsesDirectories reports whether any directory is configured.
func (s *Settings) UsesDirectories() bool { return len(s.Directory.Directories) > 0 }

// DefaultSettings returns the defaults for a rank with directories, without any directory.
func DefaultSettings() Settings { return Settings{Directory: Default(), Journal: 8192} }

// Fill sets unset fields to their defaults.
func (s *Settings) Fill() {
	if s.UsesDirectories() {
		kernel.SetDefault(&s.Journal, DefaultSettings().Journal)
	}
}

// Check returns an error if the settings are invalid. The argument shares says whether the rank lends chunks to
// peers.
func (s *Settings) Check(shares bool) error {
	switch {
	case !s.UsesDirectories() && s.Journal > 0:
		return fmt.Errorf("rank: Journal is %d without a directory: list one, or give 0", s.Journal)
	case !s.UsesDirectories():
		return nil
	case !shares:
		return fmt.Errorf("rank: Directories are %d without Shares: there is nothing to tell them; set Shares, or list none",
			len(s.Directory.Directories))
	}
	if err := s.Directory.Check(); err != nil {
		return err
	}
	return kernel.CheckCounts(kernel.Count{Name: "Journal", Value: s.Journal})
}

// Need returns the number of deadlines and requests that may be outstanding.
func (s *Settings) Need() kernel.Need {
	return s.Directory.RegistrarNeed().Add(s.Directory.LookupNeed())
}

// Conns returns the number of connections that may be open.
func (s *Settings) Conns() int { return s.Directory.MaxConns() }
