package plan

import (
	"fmt"
)

// A Strike is an occurrence of a fault that was drawn where it could happen: at the Nth of the fault's occasions that
// concern a subject. A strike depends only on this name and therefore means the same in a run from which something else
// was removed.
type Strike struct {
	Fault Fault   `yaml:"fault"`
	About Subject `yaml:"about"`
	Nth   uint64  `yaml:"nth"`
}

// String returns the strike as in "dma failed: n0.0 transfer#7, 2".
func (s Strike) String() string { return fmt.Sprintf("%s: %s, %d", s.Fault, s.About, s.Nth) }
