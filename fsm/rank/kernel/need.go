package kernel

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
)

// CountMax bounds every count of a configuration: tables number their places with 31 bits, and the bounds of tables are
// sums and products of counts. A rank with more than this would fit no machine.
const CountMax = 1 << 28

// Clamped is a count that follows from others.
func Clamped(n uint64) uint32 { return uint32(min(n, CountMax)) }

// Default fills in what a configuration leaves out.
func Default[T int64 | uint32 | uint64 | effects.Duration](v *T, d T) {
	if *v == 0 {
		*v = d
	}
}

// A Count is one of a configuration, by its name.
type Count struct {
	Name  string
	Value uint32
}

// Countable refuses counts that would not fit the numbers of tables.
func Countable(counts ...Count) error {
	for _, c := range counts {
		if c.Value > CountMax {
			return fmt.Errorf("rank: %s is %d: give at most %d", c.Name, c.Value, CountMax)
		}
	}
	return nil
}

// A Need is what a room or a flow may have outstanding at a time, so that a rank knows what to make room for. With
// counts of 28 bits no sum of them ends a number of 64.
type Need struct {
	Deadlines int
	effects.Limits
}

// And adds what another one needs. Pages of a batch are the most of any.
func (n Need) And(m Need) Need {
	n.Deadlines += m.Deadlines
	n.Sends += m.Sends
	n.Transfers += m.Transfers
	n.Copies += m.Copies
	n.Scatters += m.Scatters
	n.Revokes += m.Revokes
	n.Commands += m.Commands
	n.PagesPerBatch = max(n.PagesPerBatch, m.PagesPerBatch)
	return n
}

// Outstanding is the most completions that are awaited at a time.
func (n Need) Outstanding() int { return n.Sends + n.Transfers + n.Copies + n.Scatters }
