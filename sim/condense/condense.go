// Package condense makes a few requests of a plan's many, over a few chunks, at instants that meet: what one leaves
// behind is what the next comes upon. Five such worlds take about as long as one of profile full.
//
// A caller may rely on this: the plan stays one that can be run, and is what its seed says.
package condense

import (
	"slices"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// Profile is the name of plans that are condensed.
const Profile = "tiny"

// Bases are the profiles that they are drawn in before; those with most to meet stand here twice.
//
//kvferry:table
var Bases = []string{
	"swarm", "fenced", "leased", "pull", "pull", "delayed", "delayed", "full", "full", "both", "cache", "hccl", "upstream",
	"recall", "p2p", "p2p",
}

// Base is the profile in which a seed's plan is drawn before.
func Base(seed uint64) string {
	return Bases[draw.Hash(seed, draw.Plan, 13, 0).Below(uint64(len(Bases)))]
}

// Plan makes a plan small.
func Plan(p *plan.Plan) {
	c := condenser{p, func(n uint64) draw.Of { return draw.Hash(p.Seed, draw.Plan, 13, n) }}
	c.nodes()
	c.sizes()
	c.times()
	c.jobs()
	c.faults()
	c.presses()
	p.Profile = Profile
}

type condenser struct {
	*plan.Plan
	at func(uint64) draw.Of
}

// nodes leaves one to three senders, and one receiver or, now and then, two. Those of a ring of both stay.
func (c *condenser) nodes() {
	if c.Topology.Both == 0 {
		senders, receivers := 1+c.at(1).Between(1, 4)/2, 1+c.at(2).Between(0, 3)/3
		for c.Topology.Senders > senders && c.Without(int32(c.Topology.Senders-1)) {
		}
		for c.Topology.Receivers > receivers && c.Without(int32(c.NodeCount()-1)) {
		}
	}
}

// sizes leaves pools of a few pages, and sometimes tables of a few rows.
func (c *condenser) sizes() {
	t, b := &c.Topology, &c.Bounds
	t.Mismatch = t.Mismatch && c.at(9).Permille(200)
	t.SenderPages, t.ReceiverPages = uint32(c.at(10).Between(2, 8)), uint32(c.at(11).Between(2, 6))
	if t.Both > 0 {
		t.ReceiverPages = uint32(c.at(12).Between(3, 8))
		t.SenderPages = t.ReceiverPages
	}
	b.ReservePPM = min(b.ReservePPM, 100_000)
	most := 6 // Most tables do not matter in most seeds.
	for i, f := range []*uint32{&b.Puts, &b.Reserves, &b.Gets, &b.Waiters, &b.Grants, &b.Offers, &b.Fetches, &b.Staging} {
		*f = 64
		if c.at(uint64(20 + i)).Permille(120) {
			*f = uint32(c.at(uint64(20+i)).Again().Between(1, most))
		}
	}
	b.Places = 256
	if c.at(28).Permille(100) {
		b.Places = uint32(c.at(28).Again().Between(1, 8))
	}
	b.Requests = max(b.Requests, 8)
}

// times leaves patience and leases that are as long as each other, or a few times as long.
func (c *condenser) times() {
	t := &c.Timeouts
	unit := c.at(40).Time(10*time.Millisecond, 100*time.Millisecond)
	some := func(n uint64, lo, hi int) time.Duration { // in quarters of a unit
		return unit * time.Duration(c.at(n).Between(lo, hi)) / 4
	}
	t.Lease = some(41, 8, 24)
	t.LeaseGuard = t.Lease / time.Duration(c.at(42).Between(6, 16))
	t.PullTTL = min(t.Lease, max(some(43, 4, 24), 3*t.LeaseGuard))
	t.Lead = min(some(44, 0, 8)+time.Millisecond, (t.PullTTL-t.LeaseGuard)/2)
	t.Loan, t.Read, t.Fetch = max(t.PullTTL, some(45, 4, 64)), some(46, 4, 32), some(47, 4, 48)
	t.Alloc = some(48, 4, 24)
	t.Reply = t.Alloc + some(49, 2, 8)
	t.Put, t.Reserve, t.GetWaitMax = some(50, 8, 64), some(51, 4, 32), some(52, 4, 48)
	t.Residual, t.ClaimTTL = some(53, 1, 8), some(54, 8, 64)
	t.BackoffMin = some(55, 1, 2)
	t.BackoffMax = t.BackoffMin * time.Duration(c.at(56).Between(1, 8))
	for _, f := range []*time.Duration{&t.RequestTTL, &t.AbandonTTL, &t.Unfit, &t.Breaker} {
		if *f > 0 {
			*f = some(57, 4, 48)
		}
	}
	c.Delays.Message = max(50*time.Microsecond, unit/time.Duration(c.at(58).Between(8, 100)))
	c.Delays.Device = max(20*time.Microsecond, unit/time.Duration(c.at(59).Between(8, 200)))
	c.Delays.Scatter = max(20*time.Microsecond, unit/time.Duration(c.at(60).Between(8, 200)))
	if len(c.Topology.DriftPPM) > 0 { // What clocks may be off by depends on the lease.
		most := int(world.DriftMax(effects.Duration(t.Lease), effects.Duration(t.LeaseGuard)))
		for i := range c.Topology.DriftPPM {
			c.Topology.DriftPPM[i] = c.at(uint64(70+i)).Between(-most, most)
		}
	}
}

// chunks is how many are shared by all requests.
const chunks = 3

// jobs leaves a few, that are mostly of the same nodes and chunks.
func (c *condenser) jobs() {
	for left := c.at(80).Between(1, 8); len(c.Jobs) > left; {
		i := int(c.at(uint64(100 + len(c.Jobs))).Below(uint64(len(c.Jobs))))
		c.Jobs = slices.Delete(c.Jobs, i, i+1)
	}
	for i := range c.Jobs {
		at := func(n uint64) draw.Of { return c.at(1<<12 | uint64(i)<<4 | n) }
		j := &c.Jobs[i]
		c.habits(j, at)
		j.Keys = c.few(j, at)
		j.Batch, j.Prefix = min(j.Batch, len(j.Keys)), min(j.Prefix, len(j.Keys))
		if len(j.Said) > 0 {
			j.Batch = len(j.Keys)
		} else {
			j.Batch = min(j.Batch, int(c.Topology.SenderPages), int(c.Topology.ReceiverPages))
		}
		if i == 0 {
			j.At = at(3).Time(0, 20*time.Millisecond)
			continue
		}
		j.At = c.near(c.Jobs[at(4).Below(uint64(i))].At, at)
	}
	if c.Bounds.Batch > 0 { // As many as the longest call names.
		c.Bounds.Batch = 1
		for i := range c.Jobs {
			c.Bounds.Batch = max(c.Bounds.Batch, uint32(len(c.Jobs[i].Keys)))
		}
	}
}

// habits has readers that ask early, and where offers are kept ones that gather what others brought.
func (c *condenser) habits(j *plan.Job, at func(uint64) draw.Of) {
	if len(j.Said) > 0 || j.Plain || j.PlainTo {
		return
	}
	j.Early = j.Early || at(9).Permille(250)
	if slices.Contains(c.Topology.Delay, j.To) && at(10).Permille(250) {
		j.Gather, j.Early, j.Take, j.Whole, j.Batch = true, false, false, false, 1
	}
}

// few are some of a job's keys. A chunk of its own may be a short one, which nobody else knows by another length.
func (c *condenser) few(j *plan.Job, at func(uint64) draw.Of) []uint32 {
	keys := slices.Clone(j.Keys[:min(len(j.Keys), at(0).Between(1, chunks))])
	if at(11).Permille(300) {
		keys = keys[:1]
	}
	for k, key := range keys {
		if key < plan.KeysOwn || len(j.Said) > 0 || j.Gather || at(1).Permille(500) {
			keys[k] = key%chunks + 1
		}
	}
	if at(2).Permille(900) { // Else one chunk may stand there twice.
		slices.Sort(keys)
		keys = slices.Compact(keys)
	}
	return keys
}

// near is an instant about as long after another one as something lasts, or just before or after it.
func (c *condenser) near(from time.Duration, at func(uint64) draw.Of) time.Duration {
	spans := c.Spans()
	d := min(*spans[at(6).Below(uint64(len(spans)))], 3*time.Second)
	switch way := at(5).Below(10); {
	case way < 3: // At once.
	case way < 6:
		d = at(7).Time(0, 2*d)
		fallthrough
	case way < 9:
		from += d
	default:
		from += 2 * d
	}
	return max(0, from+at(8).Time(0, 12*c.Delays.Message)-4*c.Delays.Message)
}

// faults leaves some of one or two kinds, near requests.
func (c *condenser) faults() {
	var last time.Duration
	for i := range c.Jobs {
		last = max(last, c.Jobs[i].At)
	}
	c.Strikes, c.Spared = nil, nil
	left := max(0, c.at(81).Between(0, 5)-2)
	for len(c.Faults) > left {
		i := int(c.at(uint64(1<<10 + len(c.Faults))).Below(uint64(len(c.Faults))))
		c.Faults = slices.Delete(c.Faults, i, i+1)
	}
	for i := range c.Faults {
		at := func(n uint64) draw.Of { return c.at(1<<13 | uint64(i)<<4 | n) }
		if f := &c.Faults[i]; len(c.Jobs) > 0 {
			f.At = c.near(c.Jobs[at(4).Below(uint64(len(c.Jobs)))].At, at)
			if f.For > 0 {
				f.For = c.near(0, func(n uint64) draw.Of { return at(n).Again() })
			}
			last = max(last, f.At)
		}
	}
	slices.SortStableFunc(c.Faults, func(a, b plan.Scheduled) int { return int(a.At - b.At) })
	left = max(0, c.at(82).Between(0, 5)-2)
	kinds := plan.Faults()
	kinds = slices.DeleteFunc(kinds, func(f plan.Fault) bool { return c.Rates[f] == 0 || f == plan.FaultUnnoticed })
	for len(kinds) > left {
		i := int(c.at(uint64(1<<11 + len(kinds))).Below(uint64(len(kinds))))
		delete(c.Rates, kinds[i])
		kinds = slices.Delete(kinds, i, i+1)
	}
	for _, f := range kinds {
		c.Rates[f] = max(c.Rates[f], c.at(1<<14|uint64(f)).Between(50, 500))
	}
	c.FaultsEnd = last + c.at(83).Time(10*time.Millisecond, 2*c.Timeouts.Put)
}

// presses puts what is seldom drawn together where it meets: answers that are missing while there is time to ask again,
// planes that take as long as leases, ends of links and lives as something is under way over them, and words, imports
// among them, that come late. Each by itself, so that each also meets what was drawn before.
func (c *condenser) presses() {
	t, r := &c.Timeouts, c.Rates
	if c.at(90).Permille(250) {
		t.Alloc = max(16*c.Delays.Message, t.Put/time.Duration(c.at(91).Between(8, 32)))
		t.Reply = t.Alloc + max(16*c.Delays.Message, t.Alloc/4)
		t.BackoffMin = min(t.BackoffMin, t.Reply/2)
		t.BackoffMax = min(t.BackoffMax, 2*t.Reply)
		lost := [...]plan.Fault{plan.FaultReplyLost, plan.FaultRequestLost}[c.at(92).Below(2)]
		r[lost] = max(r[lost], c.at(92).Again().Between(100, 500))
	}
	if c.at(93).Permille(250) {
		c.Delays.Device = min(t.Lease, t.PullTTL, t.Read) / time.Duration(c.at(94).Between(16, 64))
		if c.Topology.Leased && c.at(95).Permille(500) {
			r[plan.FaultLateStore] = max(r[plan.FaultLateStore], c.at(95).Again().Between(100, 500))
		}
	}
	if c.at(96).Permille(200) {
		r[plan.FaultDelay] = max(r[plan.FaultDelay], c.at(97).Between(50, 400))
	}
	if len(c.Jobs) == 0 || !c.at(98).Permille(300) {
		return
	}
	kinds := [...]plan.Fault{plan.FaultCutLink, plan.FaultCutLink, plan.FaultCutConn, plan.FaultCrash}
	for i := range uint64(c.at(99).Between(1, 3)) {
		at := func(n uint64) draw.Of { return c.at(1<<15 | i<<4 | n) }
		x := plan.Scheduled{Fault: kinds[at(0).Below(uint64(len(kinds)))], Node: plan.Node(plan.Nobody)}
		x.Pick = at(1).Below(1000)
		if x.Fault == plan.FaultCrash {
			x.Node = plan.Node(at(2).Below(uint64(c.NodeCount())))
		}
		from := c.Jobs[at(3).Below(uint64(len(c.Jobs)))].At // Soon after, when it is under way.
		x.At = from + at(4).Time(0, max(8*c.Delays.Message, 4*c.Delays.Device))
		c.Faults = append(c.Faults, x)
		c.FaultsEnd = max(c.FaultsEnd, x.At+c.Delays.Message)
	}
	slices.SortStableFunc(c.Faults, func(a, b plan.Scheduled) int { return int(a.At - b.At) })
}
