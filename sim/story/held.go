package story

import (
	"slices"
	"strings"

	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/trace"
	"github.com/kvferry/kvferry/sim/world"
)

// What a machine still has at the end of a run was lost long before that: a row that nothing will ever end. A machine
// shows how many rows its tables have, and not which, so a recorder follows the counts, and notes for each row in which
// step it came to be there. A step that ends rows ends those first whose steps speak of the same things: of the same
// grant, command or request.

// heldOf is one count of one node.
type heldOf struct {
	node int32
	what string
}

// heldSince are the steps in which what a count has came to be there. Invariant: it has as many entries as the count.
type heldSince struct {
	life uint32
	rows []heldRow
}

// A heldRow is one row, or one page, that a machine has.
type heldRow struct {
	step int // the event that its machine was given, counted from the first of the run
	refs []int
}

// probing is the phase, counted from 1, in which it is tried whether everything works again.
const probing = 4

// heldMost bounds the rows of a count that are followed.
const heldMost = 1 << 16

// lookWhatIsHeld brings the counts of a node up to date, after a delivery.
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

// ends is the place of the row that a step ends, which speaks of these things: the oldest of those that have most in
// common with it.
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

// refsOfStep are what the last step of a node speaks of: its event, and what its machine wanted then. Connections and
// links are left out, by which everything comes.
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

// lost are the rows that a failure is about: those that are left, or where nothing gets through any more (L5), those of
// its nodes that were there before the probes began.
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

// lostMost is how many lost rows a story tells of, and lostSteps how many events of what their steps were about.
const lostMost, lostSteps = 4, 12

// tellLost adds the steps in which lost rows came to be there, and the last ones that touched what those were about.
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
