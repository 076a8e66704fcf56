package plan

import (
	"maps"
	"slices"
	"time"
)

// HasHostile reports whether the plan has strangers that send changed messages.
func (p *Plan) HasHostile() bool {
	for i := range p.Faults {
		if p.Faults[i].Fault == FaultHostileMessage {
			return true
		}
	}
	return false
}

// HasForeign reports whether the plan has messages of another implementation's encoder.
func (p *Plan) HasForeign() bool {
	struck := slices.ContainsFunc(p.Strikes, func(s Strike) bool { return s.Fault == FaultForeignEncoding })
	return struck || len(p.Topology.Foreign) > 0 || p.Rates[FaultForeignEncoding] > 0
}

// WithoutForeign returns the plan without messages of another implementation's encoder.
func (p *Plan) WithoutForeign() Plan {
	q := *p
	isForeign := func(s Strike) bool { return s.Fault == FaultForeignEncoding }
	q.Topology.Foreign = nil
	q.Rates = maps.Clone(p.Rates)
	delete(q.Rates, FaultForeignEncoding)
	q.Strikes, q.Spared = slices.DeleteFunc(slices.Clone(p.Strikes), isForeign), slices.DeleteFunc(slices.Clone(p.Spared), isForeign)
	return q
}

// Clone returns a copy of the plan, including the parts that a pass of the shrinker may change in place.
func (p *Plan) Clone() Plan {
	c := *p
	c.Jobs, c.Faults, c.Strikes = slices.Clone(p.Jobs), slices.Clone(p.Faults), slices.Clone(p.Strikes)
	c.Items = slices.Clone(p.Items)
	c.Topology.Pull, c.Topology.Delay = slices.Clone(p.Topology.Pull), slices.Clone(p.Topology.Delay)
	c.Topology.Cache = slices.Clone(p.Topology.Cache)
	c.Topology.Moves, c.Topology.Unrenewed = slices.Clone(p.Topology.Moves), slices.Clone(p.Topology.Unrenewed)
	c.Topology.DriftPPM = slices.Clone(p.Topology.DriftPPM)
	c.Topology.Windows = slices.Clone(p.Topology.Windows)
	c.Topology.Identities = slices.Clone(p.Topology.Identities)
	c.Topology.Origins = slices.Clone(p.Topology.Origins)
	c.Topology.Tenants, c.Topology.Limited = slices.Clone(p.Topology.Tenants), slices.Clone(p.Topology.Limited)
	for i := range c.Jobs {
		c.Jobs[i].Keys = slices.Clone(c.Jobs[i].Keys)
	}
	return c
}

// RemoveNode removes a node and everything that refers to the node. It reports false, and changes nothing, if no node
// with the same role would be left.
func (p *Plan) RemoveNode(node int32) bool {
	t := p.Topology
	if p.IsSender(Node(node)) {
		t.Senders--
	}
	if p.IsReceiver(Node(node)) {
		t.Receivers--
	}
	if p.IsSender(Node(node)) && p.IsReceiver(Node(node)) {
		t.Both--
	}
	if t.Senders == 0 || t.Receivers == 0 || t.Senders+t.Receivers-t.Both == 1 {
		return false
	}
	p.Topology = t
	number := func(n int32) (int32, bool) {
		if n > node {
			return n - 1, true
		}
		return n, n != node
	}
	renumber := func(n *Node) bool {
		to, ok := number(int32(*n))
		*n = Node(to)
		return ok
	}
	var jobs []Job
	for _, j := range p.Jobs {
		if renumber(&j.From) && renumber(&j.To) {
			jobs = append(jobs, j)
		}
	}
	var faults []ScheduledFault
	for _, f := range p.Faults {
		if renumber(&f.Node) {
			faults = append(faults, f)
		}
	}
	var items []Item
	for _, x := range p.Items {
		if renumber(&x.Node) {
			items = append(items, x)
		}
	}
	var strikes []Strike
	for _, x := range p.Strikes {
		var ok bool
		if x.About, ok = x.About.renumberNodes(number); ok {
			strikes = append(strikes, x)
		}
	}
	if int(node) < len(p.Topology.DriftPPM) {
		p.Topology.DriftPPM = slices.Delete(p.Topology.DriftPPM, int(node), int(node)+1)
	}
	if int(node) < len(p.Topology.Origins) {
		p.Topology.Origins = slices.Delete(p.Topology.Origins, int(node), int(node)+1)
	}
	if int(node) < len(p.Topology.Identities) {
		p.Topology.Identities = slices.Delete(p.Topology.Identities, int(node), int(node)+1)
	}
	if int(node) < len(p.Topology.Tenants) {
		p.Topology.Tenants = slices.Delete(p.Topology.Tenants, int(node), int(node)+1)
	}
	if int(node) < len(p.Topology.Windows) {
		p.Topology.Windows = slices.Delete(p.Topology.Windows, int(node), int(node)+1)
	}
	remaining := func(all []Node) (rest []Node) {
		for _, n := range all {
			if renumber(&n) {
				rest = append(rest, n)
			}
		}
		return rest
	}
	p.Topology.Pull, p.Topology.Delay = remaining(p.Topology.Pull), remaining(p.Topology.Delay)
	p.Topology.Cache, p.Topology.Limited = remaining(p.Topology.Cache), remaining(p.Topology.Limited)
	p.Topology.Moves, p.Topology.Unrenewed = remaining(p.Topology.Moves), remaining(p.Topology.Unrenewed)
	p.Jobs, p.Items, p.Faults, p.Strikes = jobs, items, faults, strikes
	return true
}

// DurationSettings returns the durations of the plan's configuration.
func (p *Plan) DurationSettings() []*time.Duration {
	t := &p.Timeouts
	return []*time.Duration{&t.Put, &t.Reserve, &t.Alloc, &t.Reply, &t.Lease, &t.LeaseGuard, &t.Residual, &t.ClaimTTL,
		&t.BackoffMin, &t.BackoffMax, &t.Breaker, &t.RequestTTL, &t.AbandonTTL, &t.Unfit,
		&t.GetWaitMax, &t.PullTTL, &t.Read, &t.Fetch, &t.Lead, &t.Loan, &p.Tuning.ProvenPeerBonus,
		&p.Delays.Message, &p.Delays.Device, &p.Delays.Scatter}
}

// CountSettings returns the counts of the plan's configuration.
func (p *Plan) CountSettings() []*uint32 {
	b := &p.Bounds
	all := []*uint32{&b.Puts, &b.Reserves, &b.Gets, &b.Waiters, &b.Requests, &b.Grants, &b.Peers, &b.Overtakes,
		&b.PeerSharePct, &b.ReservePPM,
		&b.Staging, &b.Offers, &b.Places, &b.Fetches, &b.Batch, &b.Claims, &b.Window, &b.Carries, &b.EngineSharePct, &b.Rows,
		&b.WaitingBytes, &b.OriginSharePct, &b.TenantSharePct, &b.TenantShareLater}
	for _, f := range p.Tuning.countFields() {
		all = append(all, f.v)
	}
	return all
}

// Instants returns the instants and durations of what happens in a plan. Their number does not depend on anything that
// a pass changes in place.
func (p *Plan) Instants() []*time.Duration {
	all := []*time.Duration{&p.FaultsEnd}
	for i := range p.Jobs {
		all = append(all, &p.Jobs[i].At)
	}
	for i := range p.Items {
		all = append(all, &p.Items[i].At, &p.Items[i].Span)
	}
	for i := range p.Faults {
		all = append(all, &p.Faults[i].At, &p.Faults[i].For)
	}
	return all
}
