package sim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// ref returns the number of a name that events speak of.
func (r *recorder) ref(format string, args ...any) int {
	name := fmt.Sprintf(format, args...)
	i, ok := r.refs[name]
	if !ok {
		i = len(r.t.Refs)
		r.refs[name] = i
		r.t.Refs = append(r.t.Refs, name)
	}
	return i
}

func (r *recorder) pageRef(node int32, index uint32) int { return r.ref("n%d page %d", node, index) }
func (r *recorder) ticketRef(t effects.Ticket) int       { return r.ref("ticket %d", t) }
func (r *recorder) requestRef(name []byte) int           { return r.ref("request %s", name) }
func (r *recorder) keyRef(k uint32) int                  { return r.ref("key %d", k) }

// grantRef tells lives apart: a grant's number is unique within one.
func (r *recorder) grantRef(node int32, life uint32, id effects.GrantID) int {
	if life > 0 {
		return r.ref("n%d grant %d of life %d", node, id, life)
	}
	return r.ref("n%d grant %d", node, id)
}

// refsOf collects what a line is about: its numbers by the names that the journal gives them, and
// what those stand for.
func (r *recorder) refsOf(p *noted) []int {
	var refs []int
	f := world.Forms[p.Kind]
	for _, part := range [...]struct {
		name  string
		value uint64
	}{{f.A, p.A}, {f.B, p.B}, {f.C, p.C}} {
		refs = append(refs, r.named(p, part.name, part.value)...)
	}
	if p.message != nil {
		refs = append(refs, p.message.refs...)
	} else if m := r.messageOf(p); m >= 0 {
		refs = append(refs, r.t.Messages[m].Refs...)
	}
	slices.Sort(refs)
	return slices.Compact(refs)
}

func (r *recorder) named(p *noted, name string, v uint64) []int {
	w := r.w
	switch name {
	case "ticket":
		return r.commandRefs(effects.Ticket(v))
	case "job":
		if v < uint64(len(w.Jobs)) {
			return []int{r.requestRef(w.Jobs[v].Name)}
		}
	case "grant":
		if p.Kind == world.KindTransfer {
			return nil // Of its target; the transfer has it.
		}
		return r.grantRefs(p.Node, effects.GrantID(v))
	case "transfer", "landing":
		pair := -1
		if p.Kind == world.KindCopy || p.Kind == world.KindStore || p.Kind == world.KindLoad || p.Kind == world.KindSubmit {
			pair = int(p.B)
		}
		return r.transferRefs(v, pair)
	case "corr":
		if i, ok := r.transfers[r.corrOf(p.Node, v)]; ok {
			return r.transferRefs(r.t.Transfers[i].ID, -1)
		}
	case "conn":
		if c := w.ConnOf(v & (1<<32 - 1)); c != nil && v>>50 == 0 {
			return []int{r.ref("conn %d", c.ID)}
		}
	case "copying":
		return r.copyRefs(v, int(p.B))
	case "link":
		if v > 0 && v <= uint64(len(w.Links)) {
			return []int{r.ref("link %d", v)}
		}
	case "first": // A Publish or Grant names its first page; grants name the others themselves.
		if p.Node >= 0 {
			return []int{r.pageRef(p.Node, uint32(v))}
		}
	case "id":
		return r.factRefs(p.Node, effects.Fact(p.A), v)
	}
	return nil
}

// factRefs: what a fact's id names depends on the fact.
func (r *recorder) factRefs(node int32, fact effects.Fact, id uint64) []int {
	switch fact {
	case effects.FactReady, effects.FactFillLost, effects.FactLapsed, effects.FactEvicted:
		if k, ok := r.w.Nodes[node].Keys[id]; ok {
			return []int{r.keyRef(k)}
		}
	case effects.FactGranted, effects.FactReclaimed:
		return r.grantRefs(node, effects.GrantID(id))
	case effects.FactPutEnded, effects.FactRecallEnded:
		return r.commandRefs(effects.Ticket(id))
	case effects.FactLinkUp, effects.FactLinkDown, effects.FactAllocRefused, effects.FactProxyTold, effects.FactMalformed,
		effects.FactHelloRefused, effects.FactGivenBack, effects.FactRecalled:
	}
	return nil
}

func (r *recorder) corrOf(node int32, corr uint64) corrOf {
	if node < 0 {
		return corrOf{}
	}
	return corrOf{node, r.w.Nodes[node].Life, corr}
}

func (r *recorder) commandRefs(t effects.Ticket) []int {
	if t == 0 || uint64(t) > uint64(len(r.w.Commands)) {
		return nil
	}
	refs := []int{r.ticketRef(t)}
	c := &r.w.Commands[t-1]
	if name := r.w.RequestOf(t); name != nil {
		refs = append(refs, r.requestRef(name))
	}
	pages := c.Pages
	if c.Target != 0 && c.Target != t && uint64(c.Target) <= uint64(len(r.w.Commands)) {
		refs = append(refs, r.ticketRef(c.Target))
		pages = r.w.Commands[c.Target-1].Pages
	}
	for _, p := range pages {
		refs = append(refs, r.pageRef(c.Node, r.w.Nodes[c.Node].Numbered(p)))
	}
	switch c.Want {
	case plan.WantReserve, plan.WantPut:
		j := &r.w.Jobs[c.Job]
		for _, id := range j.Ids[j.Batches[c.Batch].From:j.Batches[c.Batch].To] {
			refs = append(refs, r.keyRef(id))
		}
	case plan.WantGet, plan.WantLook, plan.WantRecall:
		for _, id := range r.w.Jobs[c.Job].Ids {
			refs = append(refs, r.keyRef(id))
		}
	case plan.WantFetch:
		for _, id := range r.w.Jobs[c.Job].Ids[c.From : c.From+int(c.Count)] {
			refs = append(refs, r.keyRef(id))
		}
	case plan.WantRelease, plan.WantUnpin, plan.WantAbort, plan.WantContains, plan.WantAbandon, plan.WantDrain,
		plan.WantConflict:
	}
	return refs
}

func (r *recorder) grantRefs(node int32, id effects.GrantID) []int {
	if node < 0 || id == 0 {
		return nil
	}
	n := r.w.Nodes[node]
	refs := []int{r.grantRef(node, n.Life, id)}
	if g := n.Grants[id]; g != nil {
		for _, p := range g.Pages {
			refs = append(refs, r.pageRef(node, p.Index))
		}
	}
	return refs
}

// transferRefs names a transfer, and the pages of one of its pairs or, with -1, of all.
func (r *recorder) transferRefs(id uint64, pair int) []int {
	if id == 0 || id > uint64(len(r.w.Transfers)) {
		return nil
	}
	t := r.w.Transfers[id-1]
	refs := []int{r.ref("transfer %d", id), r.grantRef(t.Remote.Node.ID, t.Remote.Life, t.Grant)}
	for i, p := range t.Pairs {
		if pair >= 0 && i != pair {
			continue
		}
		refs = append(refs, r.pageRef(t.Local.Node.ID, p.Local.Index), r.pageRef(t.Remote.Node.ID, p.Remote.Index))
		if int(p.Local.Index) < len(t.Local.Pages) {
			if s := t.Local.Pages[p.Local.Index].Stamps[0]; s != 0 {
				refs = append(refs, r.keyRef(s.Key()))
			}
			if name := r.w.RequestOf(t.Local.Pages[p.Local.Index].Reserved); name != nil && t.Local.Alive() {
				refs = append(refs, r.requestRef(name))
			}
		}
	}
	return refs
}

// copyRefs names the pages of one pair of a copy.
func (r *recorder) copyRefs(id uint64, pair int) []int {
	if id == 0 || id > uint64(len(r.w.Offloads)) || pair >= len(r.w.Offloads[id-1].Pairs) {
		return nil
	}
	c := r.w.Offloads[id-1]
	p := c.Pairs[pair]
	return append(r.commandRefs(c.Put), r.pageRef(c.Node.ID, p.To.Index), r.pageRef(c.Node.ID, c.Node.Numbered(p.From)))
}

// described is what a message says.
type described struct {
	kind, text string
	refs       []int
}

// describe reads a message. from is who holds it, which for a reply is who wrote it.
func (r *recorder) describe(from int32, b []byte) *described {
	if d := r.ownMessage(from, b); d != nil {
		return d
	}
	text, err := protocol.Describe(b, &pd.WireLimits)
	d := &described{kind: "nonsense", text: bounded(text)}
	tag, tagErr := protocol.PeekTag(b, &pd.WireLimits)
	if tagErr != nil {
		return d
	}
	d.kind = tag.String()
	if err != nil {
		d.kind += ", malformed"
		return d
	}
	m := protocol.NewMessage(tag)
	if m == nil || m.Decode(b, &pd.WireLimits) != nil {
		return d
	}
	switch m := m.(type) {
	case *protocol.AllocRequest:
		for _, k := range m.Keys {
			if id, ok := r.keyOf(k); ok {
				d.refs = append(d.refs, r.keyRef(id))
			}
		}
		if len(m.Ext.Request) > 0 {
			d.refs = append(d.refs, r.requestRef(m.Ext.Request))
		}
		switch {
		case len(m.Ext.Commit) > 0:
			d.kind = "commit"
		case len(m.Ext.Abort) > 0:
			d.kind = "abort"
		}
		if to := r.nodeOf(effects.Incarnation(m.Ext.To)); to != nil {
			for _, g := range slices.Concat(m.Ext.Commit, m.Ext.Abort) {
				d.refs = append(d.refs, r.grantRefs(to.ID, effects.GrantID(g))...)
			}
		}
	case *protocol.AllocResponse:
		if m.Ext.Grant != 0 && from >= 0 {
			d.refs = append(d.refs, r.grantRefs(from, effects.GrantID(m.Ext.Grant))...)
		}
		if m.AllocFailed {
			d.kind += ": failed"
		}
	case *protocol.ProxyNotif:
		d.refs = append(d.refs, r.requestRef(m.RequestID))
	}
	return d
}

// nodeOf is the node that lives under an incarnation now; nil if none does.
func (r *recorder) nodeOf(i effects.Incarnation) *world.Node {
	return r.w.LifeOf(i)
}

func (r *recorder) keyOf(text []byte) (uint32, bool) {
	if k, ok := r.keys[string(text)]; ok {
		return k, true
	}
	for k, t := range r.w.Keys {
		if t != nil {
			r.keys[string(t)] = uint32(k)
		}
	}
	k, ok := r.keys[string(text)]
	return k, ok
}

// textMax bounds what a trace keeps of a message's fields.
const textMax = 600

func bounded(s string) string {
	if len(s) > textMax {
		return strings.ToValidUTF8(s[:textMax], "") + " ..."
	}
	return s
}
