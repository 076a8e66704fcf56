package story

import (
	"slices"
	"strings"

	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/trace"
	"github.com/kvferry/kvferry/sim/world"
)

// A row that a machine still has at the end of a run was leaked long before: no event will ever remove it. A machine
// reports how many rows its tables have, but not which rows. A recorder therefore follows the counts and records for
// each row the step that inserted it. When a step removes rows, the recorder removes the rows of the steps that have
// the most references in common with it: the same grant, command or request.

// countKey identifies a count of a node.
type countKey struct {
	node int32
	name string
}

// countHistory holds the steps that inserted the rows of a count. Invariant: rows has as many entries as the count.
type countHistory struct {
	life uint32
	rows []insertedRow
}

// An insertedRow is a row or a page that a machine has.
type insertedRow struct {
	step int // index of the event of the step, counted from the start of the run
	refs []int
}

// probePhase is the phase, counted from 1, in which probes check that everything works again.
const probePhase = 4

// followedRowsMax limits the number of rows that are followed per count.
const followedRowsMax = 1 << 16

// updateCounts updates the counts of a node after a delivery.
func (r *Recorder) updateCounts(n *world.Node) {
	if !n.Up || n.Machine == nil {
		return
	}
	var refs []int
	gathered := false
	r.describer.VisitLeftovers(n, func(what string, count int) {
		key := countKey{n.ID, what}
		h := r.counts[key]
		if h == nil || h.life != n.Incarnation {
			h = &countHistory{life: n.Incarnation}
			r.counts[key] = h
		}
		count = min(max(count, 0), followedRowsMax)
		if count == len(h.rows) {
			return
		}
		if !gathered {
			refs, gathered = r.refsOfStep(n.ID), true
		}
		for len(h.rows) < count {
			h.rows = append(h.rows, insertedRow{r.stepStarts[n.ID], refs})
		}
		for len(h.rows) > count {
			h.rows = slices.Delete(h.rows, h.closestRow(refs), h.closestRow(refs)+1)
		}
	})
}

// closestRow returns the index of the row that a step with the given references removes: the oldest of the rows with
// the most references in common.
func (h *countHistory) closestRow(refs []int) (at int) {
	best := -1
	for i := range h.rows {
		common := 0
		for _, ref := range h.rows[i].refs {
			if slices.Contains(refs, ref) {
				common++
			}
		}
		if common > best {
			at, best = i, common
		}
	}
	return at
}

// refsOfStep returns the references of the last step of a node: of its event and of the effects that the machine
// returned. Connections and links are omitted, because most events refer to them.
func (r *Recorder) refsOfStep(node int32) (refs []int) {
	first := r.stepStarts[node] - r.t.Dropped
	for i := max(first, 0); i < len(r.t.Events); i++ {
		e := &r.t.Events[i]
		if e.Node != int(node) || i > first && i-e.Cause != first {
			continue
		}
		for _, ref := range e.Refs {
			name := r.t.Refs[ref]
			if !strings.HasPrefix(name, "conn ") && !strings.HasPrefix(name, "link ") && !slices.Contains(refs, ref) {
				refs = append(refs, ref)
			}
		}
	}
	return refs
}

// leakedRows returns the rows that a failure is about: the rows that are left, or, if nothing gets through any more
// (L5), the rows of the failed nodes that existed before the probes began.
func (r *Recorder) leakedRows(property string, v *trace.Violation, args []any) (rows []insertedRow) {
	for _, a := range args {
		if l, is := a.(oracle.Leftover); is {
			if h := r.counts[countKey{l.Node, l.Name}]; h != nil {
				rows = append(rows, h.rows...)
			}
		}
	}
	if property != "L5" {
		return rows
	}
	for of, h := range r.counts {
		if !slices.Contains(v.Nodes, int(of.node)) || h.life != r.w.Nodes[of.node].Incarnation {
			continue
		}
		for _, row := range h.rows {
			if row.step < r.probesStart {
				rows = append(rows, row)
			}
		}
	}
	return rows
}

// leakedRowsMax limits the lost rows in a story, and leakedStepsMax limits the events that concern the steps of these
// rows.
const leakedRowsMax, leakedStepsMax = 4, 12

// addLeakedSteps adds to v the steps that inserted the lost rows, and the last steps that touched the same things.
func (r *Recorder) addLeakedSteps(v *trace.Violation, rows []insertedRow) {
	slices.SortStableFunc(rows, func(a, b insertedRow) int { return a.step - b.step })
	rows = slices.CompactFunc(rows, func(a, b insertedRow) bool { return a.step == b.step })
	if len(rows) > leakedRowsMax {
		rows = rows[:leakedRowsMax]
	}
	for _, row := range rows {
		about := trace.Violation{Concerns: row.refs, Nodes: v.Nodes}
		if len(row.refs) > 0 {
			steps := r.lastSteps(&about)
			v.Steps = append(v.Steps, steps[max(0, len(steps)-leakedStepsMax):]...)
		}
		v.Concerns = append(v.Concerns, row.refs...)
		first := row.step - r.t.Dropped
		for i := max(first, 0); i < len(r.t.Events); i++ {
			if e := &r.t.Events[i]; e.Node >= 0 && (i == first || e.Cause > 0 && i-e.Cause == first) {
				v.Steps = append(v.Steps, i)
			}
		}
	}
	slices.Sort(v.Steps)
	v.Steps = slices.Compact(v.Steps)
	slices.Sort(v.Concerns)
	v.Concerns = slices.Compact(v.Concerns)
}
