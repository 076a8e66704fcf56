package sim

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/trace"
)

// What a violation is about is read from its sentence: in the format of [world.fail], the word before
// a verb names what its argument is. So an oracle that says "node %d grants page %d" has said all.
// TestSentencesNameTheirSubjects holds the oracles to these words.

// mention is one thing that a sentence names.
type mention struct {
	noun string
	node int32 // whose it is; noNode if the sentence does not say
	id   uint64
	name []byte // of a request
}

var verb = regexp.MustCompile(`(?:([a-z-]+) \(?"?)?%(?:%|[-+# 0]*[0-9]*[a-z])`)

// mentions finds what a sentence is about. A page or grant belongs to the node of "of node %d" or "at
// node %d" right after it, or else to the last node named before.
func mentions(format string, args []any) []mention {
	var out []mention
	arg := 0
	places := verb.FindAllStringSubmatchIndex(format, -1)
	for k, m := range places {
		if format[m[1]-1] == '%' {
			continue
		}
		if arg >= len(args) {
			break
		}
		noun := ""
		if m[2] >= 0 {
			noun = format[m[2]:m[3]]
		}
		s := mention{noun: noun, node: noNode}
		var ok bool
		s.id, s.name, ok = numberOrName(args[arg])
		arg++
		if !ok || noun == "" {
			continue
		}
		if noun == "node" {
			s.node = int32(s.id)
		} else if at := slices.IndexFunc(backwards(out), func(o mention) bool { return o.noun == "node" }); at >= 0 {
			s.node = backwards(out)[at].node
		}
		if k+1 < len(places) && arg < len(args) {
			if between := format[m[1]:places[k+1][0]]; between == " of " || between == " at " {
				if next := places[k+1]; next[2] >= 0 && format[next[2]:next[3]] == "node" {
					if id, _, ok := numberOrName(args[arg]); ok {
						s.node = int32(id)
					}
				}
			}
		}
		out = append(out, s)
	}
	return out
}

func backwards(list []mention) []mention {
	out := slices.Clone(list)
	slices.Reverse(out)
	return out
}

// numberOrName reads an argument as a number or a request's name.
func numberOrName(a any) (id uint64, name []byte, ok bool) {
	switch v := a.(type) {
	case int:
		return uint64(v), nil, true
	case int32:
		return uint64(v), nil, true
	case uint32:
		return uint64(v), nil, true
	case uint64:
		return v, nil, true
	case effects.GrantID:
		return uint64(v), nil, true
	case effects.Ticket:
		return uint64(v), nil, true
	case effects.Link:
		return uint64(v), nil, true
	case effects.Conn:
		return uint64(v), nil, true
	case effects.Landing:
		return uint64(v), nil, true
	case effects.Request:
		return uint64(v), nil, true
	case []byte:
		return 0, v, true
	case string:
		return 0, []byte(v), true
	}
	return 0, nil, false
}

// violated writes the story of a failure.
func (r *recorder) violated(f *Failure, format string, args []any) {
	if r == nil {
		return
	}
	r.look()
	story, stack, _ := strings.Cut(f.Story, "\n") // Only a panic has more than its sentence.
	v := &trace.Violation{At: f.At, Property: f.Property, Promise: f.Promise, Story: story, Stack: stack}
	named := mentions(format, args)
	for _, s := range named {
		if s.node >= 0 && int(s.node) < len(r.w.nodes) && !slices.Contains(v.Nodes, int(s.node)) {
			v.Nodes = append(v.Nodes, int(s.node))
		}
		for _, ref := range r.concerned(s) {
			if !slices.Contains(v.Concerns, ref) {
				v.Concerns = append(v.Concerns, ref)
			}
		}
	}
	if f.Property == "S5" || f.Property == "S17" {
		for _, n := range v.Nodes {
			v.Concerns = append(v.Concerns, r.disputed(r.w.nodes[n])...)
		}
		slices.Sort(v.Concerns)
		v.Concerns = slices.Compact(v.Concerns)
	}
	if last := len(r.t.Events) - 1; len(named) == 0 && last >= 0 { // A panic: what it was stepped with.
		v.Concerns = slices.Clone(r.t.Events[last].Refs)
		if n := r.t.Events[last].Node; n >= 0 {
			v.Nodes = []int{n}
		}
	}
	v.Steps = r.lastSteps(v)
	for k, text := range r.w.ledger.keys {
		if i, ok := r.refs[fmt.Sprintf("key %d", k)]; ok && text != nil && slices.Contains(v.Concerns, i) {
			v.Keys = append(v.Keys, fmt.Sprintf("key %d is %s", k, text))
		}
	}
	r.t.Violation = v
	for _, i := range v.Concerns {
		f.Concerns = append(f.Concerns, r.t.Refs[i])
	}
	for _, i := range v.Steps {
		e := &r.t.Events[i]
		line := fmt.Sprintf("%12.6f s  %-5s  %s", float64(e.At)/1e9, laneName(int32(e.Node)), e.Text)
		if e.Words != "" {
			line = fmt.Sprintf("%12.6f s  %-5s  %-44s  %s", float64(e.At)/1e9, laneName(int32(e.Node)), e.Text, e.Words)
		}
		f.Steps = append(f.Steps, line)
	}
}

// disputed finds the pages that a machine takes for free while drivers see them in use.
func (r *recorder) disputed(n *node) (refs []int) {
	if !n.up {
		return nil
	}
	for i := range n.pagesShown() {
		pg, m := n.page(i)
		inUse := pg.writers > 0 || pg.readers > 0 || pg.reserved != 0 || pg.pins > 0 || pg.granted != 0 && !r.w.plan.Leased
		if inUse && m.Refs == 0 && m.Holds == 0 && m.Grant == 0 {
			refs = append(refs, r.concerned(mention{noun: "page", node: n.id, id: uint64(i)})...)
		}
	}
	return refs
}

// concerned says what a mention stands for: a page with its grant, its key and its request, a transfer
// with its pages, a command with its request and keys.
func (r *recorder) concerned(s mention) []int {
	w := r.w
	var n *node
	if s.node >= 0 && int(s.node) < len(w.nodes) {
		n = w.nodes[s.node]
	}
	switch s.noun {
	case "page":
		if n == nil || s.id >= uint64(n.pagesShown()) {
			return nil
		}
		refs := []int{r.pageRef(n.id, uint32(s.id))}
		pg, _ := n.page(int(s.id))
		if pg.granted != 0 {
			refs = append(refs, r.grantRef(n.id, n.life, pg.granted))
		}
		if pg.reserved != 0 {
			refs = append(refs, r.ticketRef(pg.reserved))
		}
		if pg.stamps[0] != 0 {
			refs = append(refs, r.keyRef(pg.stamps[0].key()))
		}
		return refs
	case "grant", "under":
		if n == nil {
			return nil
		}
		return r.grantRefs(n.id, effects.GrantID(s.id))
	case "transfer", "landing":
		return r.transferRefs(s.id, -1)
	case "ticket", "put":
		return r.commandRefs(effects.Ticket(s.id))
	case "link":
		return []int{r.ref("link %d", s.id)}
	case "connection":
		return []int{r.ref("conn %d", s.id)}
	case "key", "keys":
		return []int{r.keyRef(uint32(s.id))}
	case "request":
		return r.requestRefs(s)
	}
	return nil
}

// requestRefs: by name it is an engine's, by number one that a node was asked.
func (r *recorder) requestRefs(s mention) []int {
	w := r.w
	if s.name == nil {
		if s.id == 0 || s.id > uint64(len(w.requests)) || w.requests[s.id-1].conn == nil {
			return nil
		}
		q := &w.requests[s.id-1]
		refs := []int{r.ref("conn %d", q.conn.id)}
		if i, ok := r.sends[corrOf{q.conn.client, q.conn.life, uint64(q.corr)}]; ok {
			refs = append(refs, r.t.Messages[i].Refs...)
		}
		return refs
	}
	refs := []int{r.requestRef(s.name)}
	if i := w.jobNamed(s.name); i < uint64(len(w.jobs)) {
		for _, k := range w.jobs[i].ids {
			refs = append(refs, r.keyRef(k))
		}
	}
	return refs
}
