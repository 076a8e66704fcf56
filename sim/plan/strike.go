package plan

import (
	"fmt"
)

// A Strike is one fault that was drawn where it could happen: at the Nth of its
// occasions that concern a subject. That name is all it depends on, so it means the
// same in a run that is otherwise shorter.
type Strike struct {
	Fault Fault   `yaml:"fault"`
	About Subject `yaml:"about"`
	Nth   uint64  `yaml:"nth"`
}

// String names the strike as in "dma failed: n0.0 transfer#7, 2".
func (s Strike) String() string { return fmt.Sprintf("%s: %s, %d", s.Fault, s.About, s.Nth) }
