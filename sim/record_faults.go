package sim

import (
	"bytes"
	"fmt"

	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/trace"
)

// struck shows a fault that was drawn on the fly. The journal has no line for it: it tells what came of it.
func (r *recorder) struck(f plan.Fault, about plan.Subject) {
	if r == nil {
		return
	}
	node, refs := r.place(about)
	r.t.Events = append(r.t.Events, trace.Event{At: r.w.now, Node: node, Group: trace.Fault, Text: fmt.Sprintf("fault: %s, %s", f, about),
		Words: "a fault is injected: " + f.String(), Refs: refs})
}

// place says where a subject is, and by what name the trace has it.
func (r *recorder) place(s plan.Subject) (node int, refs []int) {
	w := r.w
	switch s.Sort() {
	case plan.SubjectConn:
		for _, c := range w.conns {
			if c.name == s {
				return int(c.client), []int{r.ref("conn %d", c.id)}
			}
		}
	case plan.SubjectTransfer:
		for _, t := range w.transfers {
			if t.name == s {
				return int(t.local.node.id), r.transferRefs(t.id, -1)
			}
		}
	case plan.SubjectCopy:
		for _, c := range w.offloads {
			if c.name == s {
				return int(c.node.id), r.copyRefs(c.id, 0)
			}
		}
	case plan.SubjectNode:
		return int(uint8(s >> 32)), nil
	case plan.SubjectCommand:
		name := appendNumber([]byte("r"), int(s>>32&0xFFFFFF))
		for i := range w.jobs {
			j := &w.jobs[i]
			if !bytes.Equal(j.name, name) {
				continue
			}
			if s.Want().OfSender() {
				return int(j.sender), []int{r.requestRef(j.name)}
			}
			return int(j.receiver), []int{r.requestRef(j.name)}
		}
	}
	return trace.World, nil
}
