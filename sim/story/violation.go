package story

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/trace"
	"github.com/kvferry/kvferry/sim/world"
)

// RecordViolation writes the story of a failure. The subjects among args are the things that the failure concerns.
func (r *Recorder) RecordViolation(f *world.Failure, args []any) {
	r.AfterDelivery()
	story, stack, _ := strings.Cut(f.Story, "\n") // Only the story of a panic has more than one line.
	v := &trace.Violation{At: f.At, Property: f.Property, Promise: f.Promise, Story: story, Stack: stack}
	hasSubject := false
	for _, a := range args {
		s, ok := a.(oracle.Subject)
		if !ok {
			continue
		}
		hasSubject = true
		if n := int(s.NodeID()); n >= 0 && n < len(r.w.Nodes) && !slices.Contains(v.Nodes, n) {
			v.Nodes = append(v.Nodes, n)
		}
		for _, ref := range r.subjectRefs(s) {
			if !slices.Contains(v.Concerns, ref) {
				v.Concerns = append(v.Concerns, ref)
			}
		}
	}
	if f.Property == "S5" || f.Property == "S17" {
		for _, n := range v.Nodes {
			v.Concerns = append(v.Concerns, r.disputedRefs(r.w.Nodes[n])...)
		}
		slices.Sort(v.Concerns)
		v.Concerns = slices.Compact(v.Concerns)
	}
	if last := len(r.t.Events) - 1; !hasSubject && last >= 0 { // A panic: use the event with which the machine was stepped.
		v.Concerns = slices.Clone(r.t.Events[last].Refs)
		if n := r.t.Events[last].Node; n >= 0 {
			v.Nodes = []int{n}
		}
	}
	lost := r.leakedRows(f.Property, v, args)
	if len(lost) == 0 || len(v.Concerns) > 0 {
		v.Steps = r.lastSteps(v)
	}
	r.addLeakedSteps(v, lost)
	r.addLastStep(f, v)
	v.Keys = r.keyTexts(v.Concerns)
	r.t.Violation = v
	for _, i := range v.Concerns {
		f.Concerns = append(f.Concerns, r.t.Refs[i])
	}
	for _, i := range v.Steps {
		f.Steps = append(f.Steps, r.stepLine(&r.t.Events[i]))
	}
	f.Events = linesOfNodes(f.Events, v.Nodes)
}

// stepLine returns the line of an event in the text of a failure.
func (r *Recorder) stepLine(e *trace.Event) string {
	line := fmt.Sprintf("%12.6f s  %-5s  %s", float64(e.At)/1e9, world.NodeName(int32(e.Node)), e.Text)
	if e.Explanation != "" {
		line = fmt.Sprintf("%12.6f s  %-5s  %-44s  %s", float64(e.At)/1e9, world.NodeName(int32(e.Node)), e.Text, e.Explanation)
	}
	if len(e.Marks) > 0 {
		line += " [" + strings.Join(e.Marks, ", ") + "]"
	}
	return line
}

// addLastStep adds to the steps of v the whole step in which the promise broke, if the last line of the journal belongs
// to a step of that instant: its event, and all effects that the machine returned. Otherwise nothing that a node did broke
// the promise, but that it did nothing until then.
func (r *Recorder) addLastStep(f *world.Failure, v *trace.Violation) {
	last := len(r.t.Events) - 1
	if last < 0 || r.t.Events[last].At != f.At || r.t.Events[last].Node < 0 {
		return
	}
	first := r.stepStarts[r.t.Events[last].Node] - r.t.Dropped
	for i := max(first, 0); i <= last; i++ {
		if e := &r.t.Events[i]; i == first || e.Cause > 0 && i-e.Cause == first {
			v.Steps = append(v.Steps, i)
		}
	}
	slices.Sort(v.Steps)
	v.Steps = slices.Compact(v.Steps)
}

// linesOfNodes returns the lines of the event log that are about the given nodes or about the world. Without nodes, it
// returns all lines.
func linesOfNodes(lines []string, nodes []int) []string {
	if len(nodes) == 0 {
		return lines
	}
	names := []string{world.NodeName(-1)}
	for _, n := range nodes {
		names = append(names, world.NodeName(int32(n)))
	}
	return slices.DeleteFunc(slices.Clone(lines), func(line string) bool {
		fields := strings.Fields(line) // time, s, node, and the text
		return len(fields) > 2 && !slices.Contains(names, fields[2])
	})
}

// keyTexts returns the full text of the keys among some references.
func (r *refTable) keyTexts(refs []int) (lines []string) {
	var keys []uint32
	for _, i := range refs {
		if text, ok := strings.CutPrefix(r.t.Refs[i], "key "); ok {
			if k, err := strconv.ParseUint(text, 10, 32); err == nil {
				keys = append(keys, uint32(k))
			}
		}
	}
	slices.Sort(keys)
	for _, k := range keys {
		if text := r.describer.KeyText(k); text != nil {
			lines = append(lines, fmt.Sprintf("key %d is %s", k, text))
		}
	}
	return lines
}

// disputedRefs returns the pages that a machine considers free while the drivers have them in use.
func (r *Recorder) disputedRefs(n *world.Node) (refs []int) {
	if !n.Up {
		return nil
	}
	for i := range n.PageCount() {
		pg, m := r.pageAndBelief(n, i)
		inUse := pg.Writers > 0 || pg.Readers > 0 || pg.Reserved != 0 || pg.Pins > 0 || pg.Granted != 0 && !r.w.Conditions.Leased
		if inUse && m.Refs == 0 && m.Holds == 0 && m.Grant == 0 {
			refs = append(refs, r.subjectRefs(n.PageSubject(uint32(i)))...)
		}
	}
	return refs
}

// subjectRefs returns the references of a subject: a page with its grant, its key and its request, a transfer with its
// pages, a command with its request and keys.
func (r *Recorder) subjectRefs(s oracle.Subject) []int {
	switch s := s.(type) {
	case oracle.Page:
		return r.pageRefs(s)
	case oracle.Grant:
		if s.Node >= 0 && int(s.Node) < len(r.w.Nodes) {
			return r.grantRefs(s.Node, s.ID)
		}
	case oracle.Transfer:
		return r.transferRefs(uint64(s), -1)
	case oracle.Ticket:
		return r.commandRefs(effects.Ticket(s))
	case oracle.Link:
		return []int{r.refIndex("link %d", s)}
	case oracle.Conn:
		return []int{r.refIndex("conn %d", s)}
	case oracle.Key:
		return []int{r.keyRef(uint32(s))}
	case oracle.Request:
		return r.requestRefs(s)
	case oracle.Message:
		return r.receivedRefs(uint64(s))
	}
	return nil
}

func (r *refTable) pageRefs(p oracle.Page) []int {
	if p.Node < 0 || int(p.Node) >= len(r.w.Nodes) {
		return nil
	}
	n := r.w.Nodes[p.Node]
	if int64(p.Index) >= int64(n.PageCount()) {
		return nil
	}
	refs := []int{r.pageRef(n.ID, p.Index)}
	pg, _ := r.pageAndBelief(n, int(p.Index))
	if pg.Granted != 0 {
		refs = append(refs, r.grantRef(n.ID, n.Incarnation, pg.Granted))
	}
	if pg.Reserved != 0 {
		refs = append(refs, r.ticketRef(pg.Reserved))
	}
	if pg.Stamps[0] != 0 {
		refs = append(refs, r.keyRef(pg.Stamps[0].Key()))
	}
	return refs
}

// requestRefs returns the references of an engine's request and its keys.
func (r *refTable) requestRefs(name []byte) []int {
	refs := []int{r.requestRef(name)}
	for _, k := range r.describer.KeysOfRequest(name) {
		refs = append(refs, r.keyRef(k))
	}
	return refs
}

// receivedRefs returns the references of a request message that a node received.
func (r *Recorder) receivedRefs(id uint64) []int {
	w := r.w
	if id == 0 || id > uint64(len(w.Requests)) || w.Requests[id-1].Conn == nil {
		return nil
	}
	q := &w.Requests[id-1]
	refs := []int{r.refIndex("conn %d", q.Conn.ID)}
	if i, ok := r.sends[corrKey{q.Conn.Client, q.Conn.Incarnation, uint64(q.Corr)}]; ok {
		refs = append(refs, r.t.Messages[i].Refs...)
	}
	return refs
}
