package pd

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/story"
	"github.com/kvferry/kvferry/sim/world"
)

// What stories say of ranks: see [story.Teller].

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
	case plan.WantFetch, WantGiveUp:
		said.Keys = w.Jobs[c.Job].Ids[c.From : c.From+int(c.Count)]
	case plan.WantRelease, plan.WantUnpin, plan.WantAbort, plan.WantContains, plan.WantAbandon, plan.WantDrain,
		plan.WantConflict:
	}
	if w.Flows.of(c) != nil {
		said.Keys = w.Jobs[c.Job].Ids
	}
	return said
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
		if id, ok := w.Keys.Number(k); ok {
			d.Keys = append(d.Keys, id)
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
