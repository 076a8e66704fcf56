package recording

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/fsm/table"
)

// An invariantChecker checks what must hold of a machine alone between two steps (docs/safety.md: S5, S17, S18, L1). The
// simulator checks far more, because it knows what drivers and peers have done.
type invariantChecker struct{ recount table.Recount }

// recountInterval is the number of steps between two counts of all rows of the tables that peers share.
const recountInterval = 256

// check returns the invariant that the machine breaks after a step at the given time, or an empty text.
func (c *invariantChecker) check(m *rank.Rank, at effects.Time, step uint64) string {
	s := m.Stats()
	for _, p := range []struct {
		name        string
		free, total int
	}{{"pool", s.PagesFree, s.PagesTotal}, {"arena", s.ArenaFree, s.ArenaTotal}, {"device pool", s.DeviceFree, s.DeviceTotal}} {
		if p.free < 0 || p.free > p.total {
			return fmt.Sprintf("S5: the %s has %d pages free of %d", p.name, p.free, p.total)
		}
	}
	if free, held := s.PagesFree+s.DeviceFree, s.PagesGranted+s.PagesQuarantined; free+held > s.PagesTotal+s.DeviceTotal {
		return fmt.Sprintf("S5: %d pages are free and %d are granted or in quarantine, of %d", free, held, s.PagesTotal+s.DeviceTotal)
	}
	if step%recountInterval != 1 {
		return ""
	}
	if earliest, found := m.EarliestDeadline(); found {
		if declared, any := m.Deadline(); !any || declared > max(earliest, at) {
			return fmt.Sprintf("L1: the machine declares %d as its next deadline, and has one at %d", declared, earliest)
		}
	}
	c.recount.Reset()
	m.RecountShares(&c.recount)
	for _, x := range c.recount.Counts {
		if x.Counted != x.Actual {
			return fmt.Sprintf("S18: the machine counts %d %s in the shares of peers, and there are %d", x.Counted, x.Name, x.Actual)
		}
	}
	return ""
}
