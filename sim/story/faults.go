package story

import (
	"fmt"

	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/trace"
)

// Struck records a fault that was drawn during the run. The journal has no line for the fault itself, only for its
// effects.
func (r *Recorder) Struck(f plan.Fault, about plan.Subject) {
	node, refs := r.place(about)
	r.t.Events = append(r.t.Events, trace.Event{At: r.w.Now, Node: node, Group: trace.Fault,
		Text:  fmt.Sprintf("fault: %s, %s", f, about),
		Words: "a fault is injected: " + f.String(), Refs: refs})
}

// place returns the node of a subject and the references under which the trace names the subject.
func (r *names) place(s plan.Subject) (node int, refs []int) {
	w := r.w
	switch s.Sort() {
	case plan.SubjectConn:
		for _, c := range w.Conns {
			if c.Name == s {
				return int(c.Client), []int{r.ref("conn %d", c.ID)}
			}
		}
	case plan.SubjectTransfer:
		for _, t := range w.Transfers {
			if t.Name == s {
				return int(t.Local.Node.ID), r.transferRefs(t.ID, -1)
			}
		}
	case plan.SubjectCopy:
		for _, c := range w.Copies {
			if c.Name == s {
				return int(c.Node.ID), r.copyRefs(c.ID, 0)
			}
		}
	case plan.SubjectNode:
		return int(uint8(s >> 32)), nil
	case plan.SubjectCommand:
		if node, name := r.of.Asked(s); name != nil {
			return int(node), []int{r.requestRef(name)}
		}
	}
	return trace.World, nil
}
