package pd

import (
	"bytes"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/story"
	"github.com/kvferry/kvferry/sim/trace"
	"github.com/kvferry/kvferry/sim/world"
)

// What stories say of ranks: see [story.Teller].

// Who is a node in sentences.
func (w *Cluster) Who(node int32) string { return world.LaneName(node) }

// Role is what a node is.
func (w *Cluster) Role(n *world.Node) string { return n.Facets.String() }

// Words are of lines that only ranks have: there are none.
func (w *Cluster) Words(world.Entry) string { return "" }

// Command is what an engine wants.
func (w *Cluster) Command(t effects.Ticket) story.Command {
	c := &w.Commands[t-1]
	said := story.Command{Want: c.Want.String(), Node: c.Node, Held: c.Held, Target: c.Target, Pages: c.Pages}
	switch c.Want {
	case plan.WantReserve, plan.WantPut:
		j := &w.Jobs[c.Job]
		said.Keys = j.Ids[j.Batches[c.Batch].From:j.Batches[c.Batch].To]
	case plan.WantGet, plan.WantLook:
		said.Keys = w.Jobs[c.Job].Ids
	case plan.WantFetch:
		said.Keys = w.Jobs[c.Job].Ids[c.From : c.From+int(c.Count)]
	case plan.WantRelease, plan.WantUnpin, plan.WantAbort, plan.WantContains, plan.WantAbandon, plan.WantDrain,
		plan.WantConflict:
	}
	if w.ofFlow(c) != nil {
		said.Keys = w.Jobs[c.Job].Ids
	}
	return said
}

// Request is what engines call a job.
func (w *Cluster) Request(job uint64) []byte {
	if job >= uint64(len(w.Jobs)) {
		return nil
	}
	return w.Jobs[job].Name
}

// Chunks are the keys of a job.
func (w *Cluster) Chunks(request []byte) []uint32 {
	i := w.JobNamed(request)
	if i >= uint64(len(w.Jobs)) {
		return nil
	}
	return w.Jobs[i].Ids
}

// Asked is whose command it is that draws call so, and for which request.
func (w *Cluster) Asked(s plan.Subject) (int32, []byte) {
	name := AppendNumber([]byte("r"), int(s>>32&0xFFFFFF))
	for i := range w.Jobs {
		j := &w.Jobs[i]
		if !bytes.Equal(j.Name, name) {
			continue
		}
		if s.Want().OfSender() {
			return j.Sender, j.Name
		}
		return j.Receiver, j.Name
	}
	return trace.World, nil
}

// Key is a key as machines spell it.
func (w *Cluster) Key(k uint32) []byte {
	if int(k) >= len(w.Keys) {
		return nil
	}
	return w.Keys[k]
}

// Believed is what a rank believes of a page.
func (w *Cluster) Believed(n *world.Node, pool effects.PoolID, page uint32) story.Belief {
	s := PageStateOf(n, pool, page)
	return story.Belief{Refs: s.Refs, Holds: s.Holds, Grant: s.Grant, Quarantined: s.Quarantined}
}

// Lease is how long a rank grants.
func (w *Cluster) Lease(n *world.Node) effects.Duration { return Its(n).Cfg.Lease }

// Message reads a message.
func (w *Cluster) Message(from int32, b []byte) story.Message {
	text, err := protocol.Describe(b, &WireLimits)
	d := story.Message{Kind: "nonsense", Text: text}
	tag, tagErr := protocol.PeekTag(b, &WireLimits)
	if tagErr != nil {
		return d
	}
	d.Kind = tag.String()
	if err != nil {
		d.Kind += ", malformed"
		return d
	}
	m := protocol.NewMessage(tag)
	if m == nil || m.Decode(b, &WireLimits) != nil {
		return d
	}
	switch m := m.(type) {
	case *protocol.AllocRequest:
		w.alloc(&d, m)
	case *protocol.AllocResponse:
		if m.Ext.Grant != 0 && from >= 0 {
			d.Grants = []oracle.Grant{{Node: from, ID: effects.GrantID(m.Ext.Grant)}}
		}
		if m.AllocFailed {
			d.Kind += ": failed"
		}
	case *protocol.ProxyNotif:
		d.Request = append([]byte{}, m.RequestID...)
	}
	return d
}

func (w *Cluster) alloc(d *story.Message, m *protocol.AllocRequest) {
	for _, k := range m.Keys {
		if id := slices.IndexFunc(w.Keys, func(text []byte) bool { return text != nil && bytes.Equal(text, k) }); id >= 0 {
			d.Keys = append(d.Keys, uint32(id))
		}
	}
	if len(m.Ext.Request) > 0 {
		d.Request = m.Ext.Request
	}
	switch {
	case len(m.Ext.Commit) > 0:
		d.Kind = "commit"
	case len(m.Ext.Abort) > 0:
		d.Kind = "abort"
	}
	if to := w.LifeOf(effects.Incarnation(m.Ext.To)); to != nil {
		for _, g := range slices.Concat(m.Ext.Commit, m.Ext.Abort) {
			d.Grants = append(d.Grants, oracle.Grant{Node: to.ID, ID: effects.GrantID(g)})
		}
	}
}
