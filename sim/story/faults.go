package story

import (
	"fmt"

	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/trace"
)

// RecordStrike records a fault that was drawn during the run. The journal has no line for the fault itself, only for
// its effects.
func (r *Recorder) RecordStrike(f plan.Fault, about plan.Subject) {
	node, refs := r.locate(about)
	r.t.Events = append(r.t.Events, trace.Event{At: r.w.Now, Node: node, Group: trace.Fault,
		Text:        fmt.Sprintf("fault: %s, %s", f, about),
		Explanation: "a fault is injected: " + f.String(), Refs: refs})
}

// locate returns the node of a subject and the references under which the trace names the subject.
func (r *refTable) locate(s plan.Subject) (node int, refs []int) {
	w := r.w
	switch s.Kind() {
	case plan.SubjectConn:
		for _, c := range w.Conns {
			if c.Name == s {
				return int(c.Client), []int{r.refIndex("conn %d", c.ID)}
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
		if node, name := r.describer.FindRequest(s); name != nil {
			return int(node), []int{r.requestRef(name)}
		}
	}
	return trace.NoNode, nil
}
