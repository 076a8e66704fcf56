package story

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/trace"
	"github.com/kvferry/kvferry/sim/world"
)

// refTable assigns one name to each thing that events mention.
type refTable struct {
	w         *world.World
	describer Describer
	t         *trace.Trace
	refs      map[string]int // indexes in t.Refs
}

// refIndex returns the index of a name in t.Refs, and adds a name that is new.
func (r *refTable) refIndex(format string, args ...any) int {
	name := fmt.Sprintf(format, args...)
	i, ok := r.refs[name]
	if !ok {
		i = len(r.t.Refs)
		r.refs[name] = i
		r.t.Refs = append(r.t.Refs, name)
	}
	return i
}

func (r *refTable) pageRef(node int32, index uint32) int {
	return r.refIndex("n%d page %d", node, index)
}
func (r *refTable) ticketRef(t effects.Ticket) int { return r.refIndex("ticket %d", t) }
func (r *refTable) requestRef(name []byte) int     { return r.refIndex("request %s", name) }
func (r *refTable) keyRef(k uint32) int            { return r.refIndex("key %d", k) }

// grantRef returns the reference of a grant. After the first incarnation the name includes the incarnation, because
// grant numbers repeat across incarnations.
func (r *refTable) grantRef(node int32, incarnation uint32, id effects.GrantID) int {
	if incarnation > 0 {
		return r.refIndex("n%d grant %d of incarnation %d", node, id, incarnation)
	}
	return r.refIndex("n%d grant %d", node, id)
}

// refsOf collects the references of a line of the journal: the things that the numbers of the line name, and the things
// that belong to them, such as the pages of a grant.
func (r *Recorder) refsOf(p *pendingLine) []int {
	var refs []int
	f := world.LineForms[p.Kind]
	for _, part := range [...]struct {
		name  string
		value uint64
	}{{f.A, p.A}, {f.B, p.B}, {f.C, p.C}} {
		refs = append(refs, r.fieldRefs(p, part.name, part.value)...)
	}
	if p.message != nil {
		refs = append(refs, p.message.refs...)
	} else if m := r.messageIndex(p); m >= 0 {
		refs = append(refs, r.t.Messages[m].Refs...)
	}
	slices.Sort(refs)
	return slices.Compact(refs)
}

// fieldRefs returns the references of a number of a line. name says what the number is (world.LineForms).
func (r *Recorder) fieldRefs(p *pendingLine, name string, v uint64) []int {
	w := r.w
	switch name {
	case "ticket":
		return r.commandRefs(effects.Ticket(v))
	case "job":
		if name := r.describer.RequestName(v); name != nil {
			return []int{r.requestRef(name)}
		}
	case "grant":
		if p.Kind == world.KindTransfer {
			return nil // This is a grant of the target; the transfer refers to it.
		}
		return r.grantRefs(p.Node, effects.GrantID(v))
	case "transfer", "landing":
		pair := -1 // all pairs, unless the line names one
		if p.Kind == world.KindCopy || p.Kind == world.KindStore || p.Kind == world.KindLoad || p.Kind == world.KindSubmit {
			pair = int(p.B)
		}
		return r.transferRefs(v, pair)
	case "corr":
		if i, ok := r.transfers[r.corrKeyOf(p.Node, v)]; ok {
			return r.transferRefs(r.t.Transfers[i].ID, -1)
		}
	case "conn":
		if c := w.ConnOf(world.ClientConnID(v)); c != nil && !world.IsNoiseConn(v) {
			return []int{r.refIndex("conn %d", c.ID)}
		}
	case "copy":
		return r.copyRefs(v, int(p.B))
	case "link":
		if v > 0 && v <= uint64(len(w.Links)) {
			return []int{r.refIndex("link %d", v)}
		}
	case "first": // The line of a Publish or a Grant names only the first page; the record of the grant names the remaining pages.
		if p.Node >= 0 {
			return []int{r.pageRef(p.Node, uint32(v))}
		}
	case "id":
		return r.factRefs(p.Node, effects.Fact(p.A), v)
	}
	return nil
}

// factRefs returns the references of a fact. id is the hash of a key, a grant or a ticket, depending on the fact.
func (r *refTable) factRefs(node int32, fact effects.Fact, id uint64) []int {
	//exhaustive:ignore
	switch fact {
	case effects.FactReady, effects.FactFillLost, effects.FactLapsed, effects.FactEvicted:
		if k, ok := r.w.Nodes[node].Keys[id]; ok {
			return []int{r.keyRef(k)}
		}
	case effects.FactGranted, effects.FactReclaimed:
		return r.grantRefs(node, effects.GrantID(id))
	case effects.FactPutEnded, effects.FactRecallEnded:
		return r.commandRefs(effects.Ticket(id))
	}
	return nil
}

func (r *Recorder) corrKeyOf(node int32, corr uint64) corrKey {
	if node < 0 {
		return corrKey{}
	}
	return corrKey{node, r.w.Nodes[node].Incarnation, corr}
}

func (r *refTable) commandRefs(t effects.Ticket) []int {
	given := effects.Ticket(r.describer.CommandCount())
	if t == 0 || t > given {
		return nil
	}
	refs, c := []int{r.ticketRef(t)}, r.describer.DescribeCommand(t)
	if name := r.describer.RequestOfCommand(t); name != nil {
		refs = append(refs, r.requestRef(name))
	}
	pages := c.Pages
	if c.Target != 0 && c.Target != t && c.Target <= given {
		refs = append(refs, r.ticketRef(c.Target))
		pages = r.describer.DescribeCommand(c.Target).Pages
	}
	for _, p := range pages {
		refs = append(refs, r.pageRef(c.Node, p.Index))
	}
	for _, k := range c.Keys {
		refs = append(refs, r.keyRef(k))
	}
	return refs
}

func (r *refTable) grantRefs(node int32, id effects.GrantID) []int {
	if node < 0 || id == 0 {
		return nil
	}
	n := r.w.Nodes[node]
	refs := []int{r.grantRef(node, n.Incarnation, id)}
	if g := n.Grants[id]; g != nil {
		for _, p := range g.Pages {
			refs = append(refs, r.pageRef(node, p.Index))
		}
	}
	return refs
}

// transferRefs returns the references of a transfer and of the pages of a pair, or of all pairs if pair is -1.
func (r *refTable) transferRefs(id uint64, pair int) []int {
	if id == 0 || id > uint64(len(r.w.Transfers)) {
		return nil
	}
	t := r.w.Transfers[id-1]
	refs := []int{r.refIndex("transfer %d", id), r.grantRef(t.Remote.Node.ID, t.Remote.Incarnation, t.Grant)}
	for i, p := range t.Pairs {
		if pair >= 0 && i != pair {
			continue
		}
		refs = append(refs, r.pageRef(t.Local.Node.ID, p.Local.Index), r.pageRef(t.Remote.Node.ID, p.Remote.Index))
		if int(p.Local.Index) < len(t.Local.Pages) {
			if s := t.Local.Pages[p.Local.Index].Stamps[0]; s != 0 {
				refs = append(refs, r.keyRef(s.Key()))
			}
			if name := r.describer.RequestOfCommand(t.Local.Pages[p.Local.Index].Reserved); name != nil && t.Local.IsAlive() {
				refs = append(refs, r.requestRef(name))
			}
		}
	}
	return refs
}

// copyRefs returns the references of the pages of one pair of a copy.
func (r *refTable) copyRefs(id uint64, pair int) []int {
	if id == 0 || id > uint64(len(r.w.Copies)) || pair >= len(r.w.Copies[id-1].Pairs) {
		return nil
	}
	c := r.w.Copies[id-1]
	p := c.Pairs[pair]
	return []int{r.pageRef(c.Node.ID, p.To.Index), r.pageRef(c.Node.ID, p.From.Index)}
}

// describedMessage is a decoded message with its references.
type describedMessage struct {
	Message
	refs []int
}

// describeMessage decodes a message. from is the node that received the request or sent the reply.
func (r *refTable) describeMessage(from int32, b []byte) *describedMessage {
	d := &describedMessage{Message: r.describer.DescribeMessage(from, b)}
	d.Text = truncate(d.Text)
	for _, k := range d.Keys {
		d.refs = append(d.refs, r.keyRef(k))
	}
	if d.Request != nil {
		d.refs = append(d.refs, r.requestRef(d.Request))
	}
	for _, g := range d.Grants {
		d.refs = append(d.refs, r.grantRefs(g.Node, g.ID)...)
	}
	return d
}

// textMax limits the length of the text of a message in a trace, in bytes.
const textMax = 600

func truncate(s string) string {
	if len(s) > textMax {
		return strings.ToValidUTF8(s[:textMax], "") + " ..."
	}
	return s
}
