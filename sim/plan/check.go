package plan

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// The limits of plans: what the simulator can hold in memory, and how long a person waits.
const (
	pagesMax     = 4096
	JobsMax      = 2000
	keysMax      = 256 // of one job
	keyNumberMax = 1 << 16
	RequestMax   = 1 << 20
	scheduledMax = 1000
	strikesMax   = 10_000
	spanMax      = time.Hour
)

// replyForms lists the forms in which receivers may reply, by their names in package protocol.
var replyForms = []string{"ascend", "sync", "async-1", "async-2"}

// Check returns an error that describes everything that is wrong with a plan: the field, its value and the values that
// are allowed. Check returns nil if the plan can be run.
func (p *Plan) Check() error {
	c := checker{}
	if p.Version != Version {
		return fmt.Errorf("sim: plan: version is %d: this program reads version %d; write the plan anew from its seed",
			p.Version, Version)
	}
	p.checkTopology(&c)
	p.checkTimes(&c)
	p.checkJobs(&c)
	p.checkFaults(&c)
	p.checkItems(&c)
	if len(c.errs) > 0 {
		return fmt.Errorf("sim: plan: %w", errors.Join(c.errs...))
	}
	return nil
}

// checker collects the errors of a check.
type checker struct{ errs []error }

func (c *checker) addError(format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf(format, args...))
}

// checkRange reports an error unless v is between lo and hi.
func checkRange[T int | uint32 | uint64 | time.Duration](c *checker, field string, v, lo, hi T) {
	if v < lo || v > hi {
		c.addError("%s is %v: give %v to %v", field, v, lo, hi)
	}
}

// TenantsMax is the highest number of a tenant in plans.
const TenantsMax = 3

// checkTenants reports the errors in the tenants of nodes and keys.
func (p *Plan) checkTenants(c *checker) {
	t := &p.Topology
	if len(t.Tenants) > 0 && (len(t.Tenants) != p.NodeCount() || len(t.Identities) == 0) {
		c.addError("topology.tenants has %v: leave it out, or give a list for each of %d nodes, and topology.identities", t.Tenants,
			p.NodeCount())
	}
	for _, tenants := range t.Tenants {
		for _, n := range tenants {
			checkRange(c, "topology.tenants", n, 0, TenantsMax)
		}
	}
	for i, n := range t.Limited {
		if int(n) >= len(t.Tenants) || n < 0 || slices.Contains(t.Limited[:i], n) {
			c.addError("topology.limited[%d] is n%d: list each node once that topology.tenants has", i, n)
		}
	}
	for k, n := range t.KeyTenants {
		if checkRange(c, "topology.key_tenants", n, 1, TenantsMax); k > keyNumberMax {
			c.addError("topology.key_tenants has key %d: give keys up to %d", k, keyNumberMax)
		}
	}
	for i := range p.Jobs {
		for _, k := range p.Jobs[i].Keys {
			if t.KeyTenants[k] != t.KeyTenants[p.Jobs[i].Keys[0]] {
				c.addError("jobs[%d].keys are of two tenants by topology.key_tenants: give keys of one", i)
				break
			}
		}
	}
}

func (p *Plan) checkTopology(c *checker) {
	t := &p.Topology
	checkRange(c, "topology.senders", t.Senders, 1, NodesMax-1)
	checkRange(c, "topology.receivers", t.Receivers, 1, NodesMax-1)
	checkRange(c, "topology.both", t.Both, 0, min(t.Senders, t.Receivers))
	checkRange(c, "topology.senders and receivers together", p.NodeCount(), 2, NodesMax)
	checkRange(c, "topology.sender_pages", t.SenderPages, 1, pagesMax)
	checkRange(c, "topology.receiver_pages", t.ReceiverPages, 1, pagesMax)
	if t.Reply != "" && !slices.Contains(replyForms, t.Reply) {
		c.addError("topology.reply is %q: leave it out, or give ascend, sync, async-1 or async-2", t.Reply)
	}
	if len(t.DriftPPM) > p.nodeLimit() {
		c.addError("topology.drift_ppm has %d clocks: give at most one for each node", len(t.DriftPPM))
	}
	for i, n := range t.Pull {
		if !p.IsSender(n) || slices.Contains(t.Pull[:i], n) {
			c.addError("topology.pull[%d] is n%d: list each sender that offers its chunks once, n0 to n%d", i, n, t.Senders-1)
		}
	}
	for i, n := range slices.Concat(t.Moves, t.Unrenewed) {
		if !slices.Contains(t.Pull, n) {
			c.addError("topology.moves and topology.unrenewed have n%d at %d: give senders that topology.pull has", n, i)
		}
	}
	for i, n := range t.Delay {
		if !p.IsReceiver(n) || slices.Contains(t.Delay[:i], n) {
			c.addError("topology.delay[%d] is n%d: give each receiver that keeps offers once, n%d to n%d", i, n, p.ReceiverAt(0),
				p.NodeCount()-1)
		}
	}
	for i, n := range t.Cache {
		if !p.IsReceiver(n) || slices.Contains(t.Cache[:i], n) {
			c.addError("topology.cache[%d] is n%d: give each receiver that is a cache once, n%d to n%d",
				i, n, p.ReceiverAt(0), p.NodeCount()-1)
		}
	}
	for i, n := range t.Foreign {
		if n < 0 || int(n) >= p.NodeCount() || slices.Contains(t.Foreign[:i], n) {
			c.addError("topology.foreign[%d] is n%d: list each node with a foreign encoder once, n0 to n%d", i, n,
				p.NodeCount()-1)
		}
	}
	if len(t.Pull) > 0 && uint64(t.offeredPages())*uint64(1_000_000-min(p.Bounds.ReservePPM, 1_000_000)) < 1_000_000 {
		c.addError("bounds.reserve_ppm is %d, which leaves none of %d pages to offer: give less", p.Bounds.ReservePPM,
			t.offeredPages())
	}
	if t.Communicators && !t.Leased {
		c.addError("topology.communicators is true, and leased is not: give both, or neither")
	}
	t.Flags.checkFlags(c, "topology", func(w *FlowFlag) (string, bool) {
		if w.CheckTopology == nil {
			return "", false
		}
		return w.CheckTopology(p), true
	})
	if len(t.Identities) > 0 && len(t.Identities) != p.NodeCount() || slices.Contains(t.Identities, 0) {
		c.addError("topology.identities has %v: leave it out, or give a number above 0 for each of %d nodes", t.Identities, p.NodeCount())
	}
	if t.Strict && len(t.Identities) == 0 {
		c.addError("topology.strict is true, and topology.identities is empty: give both, or neither")
	}
	if t.Domains && len(t.Identities) == 0 {
		c.addError("topology.domains is true, and topology.identities is empty: give both, or neither")
	}
	p.checkTenants(c)
	if len(t.Origins) > 0 && len(t.Origins) != p.NodeCount() || slices.Contains(t.Origins, 0) {
		c.addError("topology.origins has %v: leave it out, or give a number above 0 for each of %d nodes", t.Origins, p.NodeCount())
	}
	if len(t.Windows) > p.NodeCount() {
		c.addError("topology.windows has %d: give at most one for each node", len(t.Windows))
	}
	for _, w := range t.Windows {
		checkRange(c, "topology.windows", w, 0, 1<<16-1)
	}
	for _, d := range t.DriftPPM {
		checkRange(c, "topology.drift_ppm", d, -300_000, 300_000)
	}
}

// offeredPages returns the number of pages in the pool from which offers are made.
func (t *Topology) offeredPages() uint32 {
	if t.Both > 0 {
		return min(t.SenderPages, t.ReceiverPages)
	}
	return t.SenderPages
}

func (p *Plan) checkTimes(c *checker) {
	t, b := &p.Timeouts, &p.Bounds
	for _, f := range []struct {
		name string
		v    time.Duration
	}{
		{"put", t.Put}, {"reserve", t.Reserve}, {"alloc", t.Alloc}, {"reply", t.Reply}, {"lease", t.Lease},
		{"lease_guard", t.LeaseGuard},
		{"residual", t.Residual}, {"claim_ttl", t.ClaimTTL}, {"backoff_min", t.BackoffMin}, {"backoff_max", t.BackoffMax},
		{"get_wait_max", t.GetWaitMax},
		{"pull_ttl", t.PullTTL}, {"read", t.Read}, {"fetch", t.Fetch}, {"lead", t.Lead}, {"loan", t.Loan},
	} {
		checkRange(c, "timeouts."+f.name, f.v, time.Microsecond, spanMax)
	}
	checkRange(c, "timeouts.breaker", t.Breaker, 0, spanMax)
	checkRange(c, "timeouts.request_ttl", t.RequestTTL, 0, spanMax)
	checkRange(c, "timeouts.abandon_ttl", t.AbandonTTL, 0, spanMax)
	checkRange(c, "timeouts.unfit_backoff", t.Unfit, 0, spanMax)
	for _, f := range []struct {
		name string
		v    uint32
	}{
		{"puts", b.Puts}, {"reserves", b.Reserves}, {"gets", b.Gets}, {"waiters", b.Waiters}, {"requests", b.Requests},
		{"grants", b.Grants},
		{"peers", b.Peers}, {"overtakes", b.Overtakes}, {"staging", b.Staging}, {"offers", b.Offers}, {"places", b.Places},
		{"fetches", b.Fetches},
	} {
		checkRange(c, "bounds."+f.name, f.v, 1, 1<<16)
	}
	checkRange(c, "bounds.peer_share_pct", b.PeerSharePct, 1, 100)
	checkRange(c, "bounds.engine_share_pct", b.EngineSharePct, 0, 100)
	checkRange(c, "bounds.origin_share_pct", b.OriginSharePct, 0, 100)
	checkRange(c, "bounds.tenant_share_pct", b.TenantSharePct, 0, 100)
	checkRange(c, "bounds.tenant_share_later", b.TenantShareLater, 0, 99)
	if b.TenantShareLater > 0 && (b.TenantSharePct == 0 || b.TenantSharePct >= 100) {
		c.addError("bounds.tenant_share_later is %d: give bounds.tenant_share_pct too, below 100, or leave it out", b.TenantShareLater)
	}
	if b.OriginSharePct > 0 && b.OriginSharePct < b.PeerSharePct {
		c.addError("bounds.origin_share_pct is %d: give at least bounds.peer_share_pct, %d, or 0", b.OriginSharePct, b.PeerSharePct)
	}
	checkRange(c, "bounds.window", b.Window, 0, 1<<16-1)
	checkRange(c, "bounds.carries", b.Carries, 0, 1<<19)
	checkRange(c, "bounds.batch", b.Batch, 0, 1<<16)
	checkRange(c, "bounds.claims", b.Claims, 0, 1<<16)
	p.Tuning.checkTuning(c)
	checkRange(c, "bounds.rows", b.Rows, 0, 1<<16)
	checkRange(c, "bounds.waiting_bytes", b.WaitingBytes, 0, 1<<26)
	checkRange(c, "bounds.reserve_ppm", b.ReservePPM, 0, 999_999)
	checkRange(c, "delays.message", p.Delays.Message, 0, time.Minute)
	checkRange(c, "delays.device", p.Delays.Device, 0, time.Minute)
	checkRange(c, "delays.scatter", p.Delays.Scatter, 0, time.Minute)
	checkRange(c, "faults_end", p.FaultsEnd, 0, spanMax)
	if t.Reply <= t.Alloc {
		c.addError("timeouts.reply is %v: give more than timeouts.alloc, which is %v, or every wait for pages looks like a "+
			"dead peer", t.Reply, t.Alloc)
	}
	if len(p.Topology.Pull) > 0 && t.LeaseGuard >= t.PullTTL {
		c.addError("timeouts.lease_guard is %v: give less than timeouts.pull_ttl, which is %v", t.LeaseGuard, t.PullTTL)
	}
	if len(p.Topology.Delay) > 0 && t.Lead+t.LeaseGuard >= t.PullTTL {
		c.addError("timeouts.lead is %v: give less than timeouts.pull_ttl, which is %v, leaves after timeouts.lease_guard, or "+
			"no offer is kept", t.Lead, t.PullTTL)
	}
	if t.LeaseGuard >= t.Lease {
		c.addError("timeouts.lease_guard is %v: give less than timeouts.lease, which is %v", t.LeaseGuard, t.Lease)
	}
}

func (p *Plan) checkJobs(c *checker) {
	if len(p.Jobs) > JobsMax {
		c.addError("jobs are %d: give at most %d", len(p.Jobs), JobsMax)
		return
	}
	seen := map[uint32]bool{}
	for i := range p.Jobs {
		j := &p.Jobs[i]
		at := func(field string) string { return fmt.Sprintf("jobs[%d].%s", i, field) }
		checkRange(c, at("at"), j.At, 0, spanMax)
		checkRange(c, at("request"), j.Request, 0, RequestMax)
		if seen[j.Request] {
			c.addError("%s is %d, which an earlier job has: each job needs a different number", at("request"), j.Request)
		}
		seen[j.Request] = true
		if !p.IsSender(j.From) {
			c.addError("%s is n%d: give a sender, n0 to n%d", at("from"), j.From, p.Topology.Senders-1)
		}
		if !p.IsReceiver(j.To) {
			c.addError("%s is n%d: give a receiver, n%d to n%d", at("to"), j.To, p.ReceiverAt(0), p.NodeCount()-1)
		}
		if j.To == j.From {
			c.addError("%s is n%d, which is also the sender: use another node", at("to"), j.To)
		}
		if j.PlainTo && (j.Plain || !slices.Contains(p.Topology.Pull, j.From)) {
			c.addError("%s is set, but n%d is not a sender of topology.pull: a plain reader can read only offered chunks",
				at("plain_to"), j.From)
		}
		checkRange(c, "the count of "+at("keys"), len(j.Keys), 1, keysMax)
		for _, k := range j.Keys {
			checkRange(c, at("keys"), k, 0, keyNumberMax)
		}
		checkRange(c, at("batch"), j.Batch, 1, keysMax)
		checkRange(c, at("prefix"), j.Prefix, 0, keysMax)
		j.Flags.checkFlags(c, fmt.Sprintf("jobs[%d]", i), func(w *FlowFlag) (string, bool) {
			if w.CheckJob == nil {
				return "", false
			}
			return w.CheckJob(p, j), true
		})
		if j.Gather && j.Plain {
			c.addError("%s and plain are both set: no sender sends chunks for a job that gathers; set only one", at("gather"))
		}
	}
}

func (p *Plan) checkFaults(c *checker) {
	if len(p.Faults) > scheduledMax || len(p.Strikes)+len(p.Spared) > strikesMax {
		c.addError("faults are %d and strikes %d: give at most %d and %d", len(p.Faults), len(p.Strikes)+len(p.Spared),
			scheduledMax, strikesMax)
		return
	}
	for i := range p.Faults {
		f := &p.Faults[i]
		at := func(field string) string { return fmt.Sprintf("faults[%d].%s", i, field) }
		checkRange(c, at("at"), f.At, 0, spanMax)
		checkRange(c, at("for"), f.For, 0, spanMax)
		checkRange(c, at("nth"), f.Nth, 0, 1<<32)
		if !f.Fault.IsScheduled() {
			c.addError("%s is %q, which is not a scheduled fault: set a rate, or list strikes", at("fault"), f.Fault)
		}
		if int(f.Node) >= p.nodeLimit() || f.Node < 0 && f.Node != Node(NoNode) {
			c.addError("%s is n%d: give n0 to n%d", at("node"), f.Node, p.nodeLimit()-1)
		}
		if _, ok := ParseMoment(f.When); !ok {
			c.addError("%s is %q: leave it out, or give before or after and one of %s", at("when"), f.When,
				strings.Join(momentNames(), ", "))
		}
	}
	for f, rate := range p.Rates {
		if f.IsScheduled() {
			c.addError("rates: %q is scheduled: list it under faults", f)
		}
		checkRange(c, fmt.Sprintf("rates: %s", f), rate, 0, 1000)
	}
	for _, s := range slices.Concat(p.Strikes, p.Spared) {
		if s.Fault.IsScheduled() {
			c.addError("strikes: %q is scheduled: list it under faults", s.Fault)
		}
	}
}

// NodeCount returns the number of nodes.
func (p *Plan) NodeCount() int { return p.Topology.Senders + p.Topology.Receivers - p.Topology.Both }

// ReceiverAt returns the i-th node that receives.
func (p *Plan) ReceiverAt(i int) Node { return Node(p.Topology.Senders - p.Topology.Both + i) }

// IsSender reports whether n is a node that sends.
func (p *Plan) IsSender(n Node) bool { return n >= 0 && int(n) < p.Topology.Senders }

// IsReceiver reports whether n is a node that receives.
func (p *Plan) IsReceiver(n Node) bool { return n >= p.ReceiverAt(0) && int(n) < p.NodeCount() }
