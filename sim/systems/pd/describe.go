package pd

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/story"
	"github.com/kvferry/kvferry/sim/world"
)

// The descriptions of ranks for stories. See [story.Describer].

// DescribeCommand describes the command with ticket t.
func (w *Cluster) DescribeCommand(t effects.Ticket) story.Command {
	c := &w.Commands[t-1]
	description := story.Command{Kind: c.Kind.String(), Node: c.Node, Held: c.HoldsMemory, Target: c.Target, Pages: c.Pages}
	switch c.Kind {
	case plan.CommandReserve, plan.CommandPut:
		j := &w.Jobs[c.Job]
		description.Keys = j.KeyNumbers[j.Batches[c.Batch].From:j.Batches[c.Batch].To]
	case plan.CommandGet, plan.CommandLookup:
		description.Keys = w.Jobs[c.Job].KeyNumbers
	case plan.CommandFetch, WantGiveUp, WantOfDomain:
		description.Keys = w.Jobs[c.Job].KeyNumbers[c.From : c.From+int(c.Count)]
	case plan.CommandRelease, plan.CommandUnpin, plan.CommandAbort, plan.CommandContains, plan.CommandAbandon, plan.CommandDrain,
		plan.CommandConflict:
	}
	if w.Flows.kindOf(c) != nil {
		description.Keys = w.Jobs[c.Job].KeyNumbers
	}
	return description
}

// KeyText returns the text of the key with number k, or nil if there is no such key.
func (w *Cluster) KeyText(k uint32) []byte {
	if int(k) >= len(w.Keys) {
		return nil
	}
	return w.Keys[k]
}

// BeliefAbout returns what a rank believes about a page.
func (w *Cluster) BeliefAbout(n *world.Node, page uint32) story.Belief {
	s := PageStateOf(n, page)
	return story.Belief{Refs: s.Refs, Holds: s.Holds, Grant: s.Grant, Quarantined: s.Quarantined}
}

// LeaseTime returns the time for which a rank grants pages.
func (w *Cluster) LeaseTime(n *world.Node) effects.Duration { return InfoOf(n).Cfg.Lease }

// VisitLeftovers visits the counts that must be zero at rest: counters of a rank, and the number of rows of each table
// that is empty at rest.
func (w *Cluster) VisitLeftovers(n *world.Node, visit func(what string, count int)) {
	if !n.Up {
		return
	}
	VisitRestCounts(n, visit)
	s := StatsOf(n)
	visit("puts", s.Puts)
	visit("bundles", s.Bundles)
	visit(PagesInUse, CountPagesInUse(&s)-CountReadyPages(n))
	TablesOf(n, func(name string, rows int, rest table.Rest) {
		if rest == table.Empty {
			visit(name, rows)
		}
	})
}

// CountPagesInUse returns the number of pages that are not free, in both pools.
func CountPagesInUse(s *rank.Stats) int {
	return s.PagesTotal - s.PagesFree + s.DeviceTotal - s.DeviceFree
}

// PagesInUse is the name, in stories, of pages that are neither free nor the pages of ready chunks.
const PagesInUse = "pages in use"

// CountReadyPages returns the number of pages of n's ready chunks.
func CountReadyPages(n *world.Node) int {
	s := StatsOf(n)
	if InfoOf(n).Cfg.Layers > 0 { // some chunks have a page for each layer
		return s.PagesEvictable
	}
	return s.Entries
}

// VisitRestCounts visits the counters of n's machine that must be zero when nothing is in flight.
func VisitRestCounts(n *world.Node, visit func(what string, count int)) {
	s := StatsOf(n)
	visit("gets", s.Gets)
	visit("grants", s.Grants)
	visit("pending requests", s.PendingRequests)
	visit("reserves", s.Reserves)
	visit("claims", s.Claims)
	visit("fills", s.Fills)
	visit("granted pages", s.PagesGranted)
	visit("quarantined pages", s.PagesQuarantined)
	visit("leased pages", s.PagesLeased)
	visit("arena pages", s.ArenaTotal-s.ArenaFree)
	visit("pages pinned for peers", s.Pinned)
	visit("offers", s.Offers)
	visit("remote locations", s.Locations)
	visit("fetches", s.Fetches)
	visit("staging pages", s.Staged)
}

// DescribeMessage decodes and describes a message.
func (w *Cluster) DescribeMessage(from int32, b []byte) story.Message {
	if d, ok := w.describeRegistration(from, b); ok {
		return d
	}
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
		w.describeAlloc(&d, m)
	case *protocol.AllocResponse:
		d.Grants = grantsOf(from, m.Ext.Grant)
		if m.AllocFailed {
			d.Kind += ": failed"
		}
	case *protocol.ProxyNotif:
		d.Request = append([]byte{}, m.RequestID...)
	default:
		w.addLeaseGrants(&d, from, m)
	}
	return d
}

// addLeaseGrants adds the grants that a message about read leases names. The grants belong to the owner of the pages:
// the sender or the receiver of the message.
func (w *Cluster) addLeaseGrants(d *story.Message, from int32, m protocol.Message) {
	switch m := m.(type) {
	case *protocol.PullReadyNotif:
		w.addKeysAndRequest(d, m.Keys, m.Ext.Request)
		d.Grants = grantsOf(from, m.Ext.Grant)
	case *protocol.PullDoneSignal:
		d.Grants = w.grantsOfIncarnation(m.Ext.To, m.Ext.Grant)
	case *protocol.RenewRequest:
		d.Grants = w.grantsOfIncarnation(m.To, slices.Concat(m.Grants, m.Done)...)
	case *protocol.RenewResponse:
		d.Grants = grantsOf(from, slices.Concat(m.Extended, m.Gone, m.Done)...)
	case *protocol.CacheQueryRequest:
		w.addKeysAndRequest(d, m.Keys, m.Ext.Request)
		d.Grants = w.grantsOfIncarnation(m.Ext.To, m.Ext.Done...)
	case *protocol.CacheQueryResponse:
		d.Grants = grantsOf(from, append(slices.Clone(m.Ext.Done), m.Ext.Grant)...)
	case *protocol.AscendBatchedLookupAndGetMsg:
		w.addKeysAndRequest(d, m.Keys, m.LookupID)
		d.Grants = grantsOf(from, m.Ext.Grant)
	case *protocol.AscendBatchedLookupAndGetRetMsg:
		d.Grants = grantsOf(from, m.Ext.Grant)
	case *protocol.AscendBatchedLookupAndGetDoneMsg:
		w.addKeysAndRequest(d, nil, m.LookupID)
		d.Grants = w.grantsOfIncarnation(m.Ext.To, m.Ext.Grant)
	}
}

// describeRegistration describes the messages about registered blocks, which have no tags.
func (w *Cluster) describeRegistration(from int32, b []byte) (d story.Message, ok bool) {
	var (
		registration protocol.PushRegistration
		withdrawal   protocol.PushWithdrawal
		keep         protocol.PushKeep
		end          protocol.PushEnd
	)
	switch {
	case registration.Decode(b, &WireLimits) == nil:
		d.Kind, d.Request = "PushRegistration", slices.Clone(registration.RequestID)
		d.Grants = grantsOf(from, registration.Ext.Grant)
	case withdrawal.Decode(b, &WireLimits) == nil:
		d.Kind = "PushWithdrawal"
	case keep.Decode(b, &WireLimits) == nil:
		d.Kind = "PushKeep"
	case end.Decode(b, &WireLimits) == nil:
		if d.Kind = "PushEnd"; end.Code != 0 {
			d.Kind += ": " + effects.CodeFromWire(end.Code).String()
		}
	default:
		return d, false
	}
	return d, true
}

// addKeysAndRequest adds the keys and the request that a message names.
func (w *Cluster) addKeysAndRequest(d *story.Message, keys [][]byte, request []byte) {
	for _, k := range keys {
		if id, ok := w.Keys.NumberOf(k); ok {
			d.Keys = append(d.Keys, id)
		}
	}
	if len(request) > 0 {
		d.Request = slices.Clone(request)
	}
}

// grantsOf returns the grants of a node with the given ids. An id of 0 stands for no grant.
func grantsOf(node int32, ids ...uint64) (all []oracle.Grant) {
	for _, id := range ids {
		if id != 0 && node >= 0 {
			all = append(all, oracle.Grant{Node: node, ID: effects.GrantID(id)})
		}
	}
	return all
}

// grantsOfIncarnation returns the grants, with the given ids, of the incarnation with the given name.
func (w *Cluster) grantsOfIncarnation(name protocol.UUID, ids ...uint64) []oracle.Grant {
	if n := w.NodeOfIncarnation(effects.Incarnation(name)); n != nil {
		return grantsOf(n.ID, ids...)
	}
	return nil
}

// describeAlloc adds the chunks, the request and the grants that an allocation request names, and says whether the
// message is a commit or an abort.
func (w *Cluster) describeAlloc(d *story.Message, m *protocol.AllocRequest) {
	w.addKeysAndRequest(d, m.Keys, m.Ext.Request)
	switch {
	case len(m.Ext.Commit) > 0:
		d.Kind = "commit"
	case len(m.Ext.Abort) > 0:
		d.Kind = "abort"
	}
	d.Grants = w.grantsOfIncarnation(m.Ext.To, slices.Concat(m.Ext.Commit, m.Ext.Abort)...)
}
