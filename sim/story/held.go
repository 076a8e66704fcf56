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
type heldOf struct {
	node int32
	what string
}

// heldSince holds the steps that inserted the rows of a count. Invariant: rows has as many entries as the count.
type heldSince struct {
	life uint32
	rows []heldRow
}

// An insertedRow is a row or a page that a machine has.
type heldRow struct {
	step int // index of the event of the step, counted from the start of the run
	refs []int
}

// probing is the phase, counted from 1, in which probes check that everything works again.
const probing = 4

// heldMost limits the number of rows that are followed per count.
const heldMost = 1 << 16

// lookWhatIsHeld updates the counts of a node after a delivery.
func (r *Recorder) lookWhatIsHeld(n *world.Node) {
	if !n.Up || n.Machine == nil {
		return
	}
	var refs []int
	gathered := false
	r.of.Held(n, func(what string, count int) {
		of := heldOf{n.ID, what}
		h := r.held[of]
		if h == nil || h.life != n.Life {
			h = &heldSince{life: n.Life}
			r.held[of] = h
		}
		count = min(max(count, 0), heldMost)
		if count == len(h.rows) {
			return
		}
		if !gathered {
			refs, gathered = r.refsOfStep(n.ID), true
		}
		for len(h.rows) < count {
			h.rows = append(h.rows, heldRow{r.stepped[n.ID], refs})
		}
		for len(h.rows) > count {
			h.rows = slices.Delete(h.rows, h.ends(refs), h.ends(refs)+1)
		}
	})
}

// ends returns the index of the row that a step with the given references removes: the oldest of the rows with the most
// references in common.
func (h *heldSince) ends(refs []int) (at int) {
	most := -1
	for i := range h.rows {
		common := 0
		for _, ref := range h.rows[i].refs {
			if slices.Contains(refs, ref) {
				common++
			}
		}
		if common > most {
			at, most = i, common
		}
	}
	return at
}

// refsOfStep returns the references of the last step of a node: of its event and of the effects that the machine
// returned. Connections and links are omitted, because most events refer to them.
func (r *Recorder) refsOfStep(node int32) (refs []int) {
	first := r.stepped[node] - r.t.Dropped
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

// lost returns the rows that a failure is about: the rows that are left, or, if nothing gets through any more (L5), the
// rows of the failed nodes that existed before the probes began.
func (r *Recorder) lost(property string, v *trace.Violation, args []any) (rows []heldRow) {
	for _, a := range args {
		if l, is := a.(oracle.Left); is {
			if h := r.held[heldOf{l.Node, l.What}]; h != nil {
				rows = append(rows, h.rows...)
			}
		}
	}
	if property != "L5" {
		return rows
	}
	for of, h := range r.held {
		if !slices.Contains(v.Nodes, int(of.node)) || h.life != r.w.Nodes[of.node].Life {
			continue
		}
		for _, row := range h.rows {
			if row.step < r.probes {
				rows = append(rows, row)
			}
		}
	}
	return rows
}

// lostMost limits the lost rows in a story, and lostSteps limits the events that concern the steps of these rows.
const lostMost, lostSteps = 4, 12

// tellLost adds to v the steps that inserted the lost rows, and the last steps that touched the same things.
func (r *Recorder) tellLost(v *trace.Violation, rows []heldRow) {
	slices.SortStableFunc(rows, func(a, b heldRow) int { return a.step - b.step })
	rows = slices.CompactFunc(rows, func(a, b heldRow) bool { return a.step == b.step })
	if len(rows) > lostMost {
		rows = rows[:lostMost]
	}
	for _, row := range rows {
		about := trace.Violation{Concerns: row.refs, Nodes: v.Nodes}
		if len(row.refs) > 0 {
			steps := r.lastSteps(&about)
			v.Steps = append(v.Steps, steps[max(0, len(steps)-lostSteps):]...)
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
