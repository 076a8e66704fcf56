package kernel

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
)

// CountMax bounds every count of a configuration. Tables number their slots with 31 bits, and the bounds of tables are
// sums and products of counts. A rank that needs more would not fit into the memory of any machine.
const CountMax = 1 << 28

// ClampCount returns a count that was computed from configured counts, limited to CountMax.
func ClampCount(n uint64) uint32 { return uint32(min(n, CountMax)) }

// SetDefault sets *v to d if the configuration left the value out (zero).
func SetDefault[T int64 | uint32 | uint64 | effects.Duration](v *T, d T) {
	if *v == 0 {
		*v = d
	}
}

// Count is a count of a configuration, with its name for error texts.
type Count struct {
	Name  string
	Value uint32
}

// CheckCounts returns an error that names the first count above CountMax, or nil.
func CheckCounts(counts ...Count) error {
	for _, c := range counts {
		if c.Value > CountMax {
			return fmt.Errorf("rank: %s is %d: give at most %d", c.Name, c.Value, CountMax)
		}
	}
	return nil
}

// Need is what a room or a flow may have outstanding at a time: pending deadlines, and completions of each kind. The
// rank adds the needs of all rooms to size its tables. Counts have at most 28 bits, so their sums cannot overflow 64
// bits.
type Need struct {
	Deadlines int
	effects.Limits
}

// Add returns the sum of both needs. PagesPerBatch is not added: the larger value counts.
func (n Need) Add(m Need) Need {
	n.Deadlines += m.Deadlines
	n.Sends += m.Sends
	n.Transfers += m.Transfers
	n.Copies += m.Copies
	n.Scatters += m.Scatters
	n.Verifies += m.Verifies
	n.Revokes += m.Revokes
	n.Commands += m.Commands
	n.PagesPerBatch = max(n.PagesPerBatch, m.PagesPerBatch)
	return n
}

// MaxOutstanding returns the maximum number of completions that are awaited at a time.
func (n Need) MaxOutstanding() int { return n.Sends + n.Transfers + n.Copies + n.Scatters + n.Verifies }
