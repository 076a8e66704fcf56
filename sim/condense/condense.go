// Package condense reduces a plan to a few requests over a few chunks, at times that are close together, so that a
// request meets the state that an earlier request left behind. Five condensed runs take about as long as a run of
// profile full.
//
// A caller may rely on two properties: the condensed plan can be run, and depends on the seed only.
//
// Example: BaseProfile(seed) names the profile in which the caller draws the plan of the seed, say "pull" with 40 jobs.
// Plan then keeps a few of the jobs and at most one or two receivers, maps most keys to three chunks, moves each job
// near another job, and sets the profile to "tiny".
package condense

import (
	"slices"
	"time"

	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
)

// Profile is the profile name of condensed plans.
const Profile = "tiny"

// BaseProfiles lists the profiles in which plans are drawn before they are condensed. Profiles with more interactions
// are listed twice, so as to be drawn more often.
//
//kvferry:table
var BaseProfiles = []string{
	"swarm", "fenced", "leased", "pull", "pull", "delayed", "delayed", "full", "full", "both", "cache", "hccl", "upstream",
	"recall", "p2p", "p2p",
}

// FurtherProfiles lists further such profiles. They have a draw of their own, so that the choice among BaseProfiles is
// as before in the remaining seeds.
//
//kvferry:table
var FurtherProfiles = []string{"layerwise", "layerwise", "register", "starve"}

// furtherPermille is the number of seeds per thousand that use FurtherProfiles.
const furtherPermille = 200

// BaseProfile returns the profile in which the plan of a seed is drawn before condensing.
func BaseProfile(seed uint64) string {
	if further := draw.Hash(seed, draw.Plan, 13, 3); further.ChancePermille(furtherPermille) {
		return FurtherProfiles[further.Rehash().Below(uint64(len(FurtherProfiles)))]
	}
	return BaseProfiles[draw.Hash(seed, draw.Plan, 13, 0).Below(uint64(len(BaseProfiles)))]
}

// Plan condenses p in place.
func Plan(p *plan.Plan) {
	c := condenser{p, func(n uint64) draw.Value { return draw.Hash(p.Seed, draw.Plan, 13, n) }}
	c.condenseNodes()
	c.condenseSizes()
	c.condenseTimes()
	c.condenseJobs()
	c.condenseFaults()
	c.addPressure()
	p.Profile = Profile
}

type condenser struct {
	*plan.Plan
	drawAt func(uint64) draw.Value
}

// condenseNodes keeps one to three senders and one or at times two receivers. Nodes that both send and receive are all
// kept.
func (c *condenser) condenseNodes() {
	if c.Topology.Both == 0 {
		senders, receivers := 1+c.drawAt(1).Between(1, 4)/2, 1+c.drawAt(2).Between(0, 3)/3
		for c.Topology.Senders > senders && c.RemoveNode(int32(c.Topology.Senders-1)) {
		}
		for c.Topology.Receivers > receivers && c.RemoveNode(int32(c.NodeCount()-1)) {
		}
	}
}

// condenseSizes sets pools of a few pages, and sometimes tables of a few rows.
func (c *condenser) condenseSizes() {
	t, b := &c.Topology, &c.Bounds
	t.Mismatch = t.Mismatch && c.drawAt(9).ChancePermille(200)
	t.SenderPages, t.ReceiverPages = uint32(c.drawAt(10).Between(2, 8)), uint32(c.drawAt(11).Between(2, 6))
	if t.Both > 0 {
		t.ReceiverPages = uint32(c.drawAt(12).Between(3, 8))
		t.SenderPages = t.ReceiverPages
	}
	b.ReservePPM = min(b.ReservePPM, 100_000)
	limit := 6 // Few seeds limit more than a few of these tables.
	for i, f := range []*uint32{&b.Puts, &b.Reserves, &b.Gets, &b.Waiters, &b.Grants, &b.Offers, &b.Fetches, &b.Staging} {
		*f = 64
		if c.drawAt(uint64(20 + i)).ChancePermille(120) {
			*f = uint32(c.drawAt(uint64(20+i)).Rehash().Between(1, limit))
		}
	}
	b.Places = 256
	if c.drawAt(28).ChancePermille(100) {
		b.Places = uint32(c.drawAt(28).Rehash().Between(1, 8))
	}
	b.Requests = max(b.Requests, 8)
}

// condenseTimes sets timeouts and leases that are equal or differ by a small factor.
func (c *condenser) condenseTimes() {
	t := &c.Timeouts
	unit := c.drawAt(40).RoundedDuration(10*time.Millisecond, 100*time.Millisecond)
	units := func(n uint64, lo, hi int) time.Duration { // lo and hi are in quarters of a unit
		return unit * time.Duration(c.drawAt(n).Between(lo, hi)) / 4
	}
	t.Lease = units(41, 8, 24)
	t.LeaseGuard = t.Lease / time.Duration(c.drawAt(42).Between(6, 16))
	t.PullTTL = min(t.Lease, max(units(43, 4, 24), 3*t.LeaseGuard))
	t.Lead = min(units(44, 0, 8)+time.Millisecond, (t.PullTTL-t.LeaseGuard)/2)
	t.Loan, t.Read, t.Fetch = max(t.PullTTL, units(45, 4, 64)), units(46, 4, 32), units(47, 4, 48)
	t.Alloc = units(48, 4, 24)
	t.Reply = t.Alloc + units(49, 2, 8)
	t.Put, t.Reserve, t.GetWaitMax = units(50, 8, 64), units(51, 4, 32), units(52, 4, 48)
	t.Residual, t.ClaimTTL = units(53, 1, 8), units(54, 8, 64)
	t.BackoffMin = units(55, 1, 2)
	t.BackoffMax = t.BackoffMin * time.Duration(c.drawAt(56).Between(1, 8))
	for _, f := range []*time.Duration{&t.RequestTTL, &t.AbandonTTL, &t.Unfit, &t.Breaker} {
		if *f > 0 {
			*f = units(57, 4, 48)
		}
	}
	c.Delays.Message = max(50*time.Microsecond, unit/time.Duration(c.drawAt(58).Between(8, 100)))
	c.Delays.Device = max(20*time.Microsecond, unit/time.Duration(c.drawAt(59).Between(8, 200)))
	c.Delays.Scatter = max(20*time.Microsecond, unit/time.Duration(c.drawAt(60).Between(8, 200)))
}

// sharedChunks is the number of chunks that all requests share.
const sharedChunks = 3

// condenseJobs keeps a few jobs, mostly of the same nodes and chunks.
func (c *condenser) condenseJobs() {
	for jobsLeft := c.drawAt(80).Between(1, 8); len(c.Jobs) > jobsLeft; {
		i := int(c.drawAt(uint64(100 + len(c.Jobs))).Below(uint64(len(c.Jobs))))
		c.Jobs = slices.Delete(c.Jobs, i, i+1)
	}
	for i := range c.Jobs {
		at := func(n uint64) draw.Value { return c.drawAt(1<<12 | uint64(i)<<4 | n) }
		j := &c.Jobs[i]
		c.changeReader(j, at)
		j.Keys = c.pickKeys(j, at)
		j.Batch, j.Prefix = min(j.Batch, len(j.Keys)), min(j.Prefix, len(j.Keys))
		if hasFlow(j) {
			j.Batch = len(j.Keys)
		} else {
			j.Batch = min(j.Batch, int(c.Topology.SenderPages), int(c.Topology.ReceiverPages))
		}
		if i == 0 {
			j.At = at(3).RoundedDuration(0, 20*time.Millisecond)
			continue
		}
		j.At = c.timeNear(c.Jobs[at(4).Below(uint64(i))].At, at)
	}
	if c.Bounds.Batch > 0 { // The limit is the number of keys of the longest call.
		c.Bounds.Batch = 1
		for i := range c.Jobs {
			c.Bounds.Batch = max(c.Bounds.Batch, uint32(len(c.Jobs[i].Keys)))
		}
	}
}

// changeReader makes some readers ask early. At receivers that keep offers, changeReader turns some jobs into readers
// that gather the chunks that earlier jobs sent.
func (c *condenser) changeReader(j *plan.Job, at func(uint64) draw.Value) {
	if hasFlow(j) || j.Plain || j.PlainTo {
		return
	}
	j.Early = j.Early || at(9).ChancePermille(250)
	if slices.Contains(c.Topology.Delay, j.To) && at(10).ChancePermille(250) {
		j.Gather, j.Early, j.Take, j.Whole, j.Batch, j.Flags = true, false, false, false, 1, nil
	}
}

// hasFlow reports whether a job belongs to a flow. A word about the job's end is no flow.
func hasFlow(j *plan.Job) bool {
	return len(j.Flags) > 1 || len(j.Flags) == 1 && !j.Flags[plan.ReportsEnd]
}

// pickKeys returns some of the keys of a job. A key that only this job uses may stand for a short chunk, because no
// second job has the chunk with a different length.
func (c *condenser) pickKeys(j *plan.Job, at func(uint64) draw.Value) []uint32 {
	keys := slices.Clone(j.Keys[:min(len(j.Keys), at(0).Between(1, sharedChunks))])
	if at(11).ChancePermille(300) {
		keys = keys[:1]
	}
	for k, key := range keys {
		if key < plan.FirstUnsharedKey || hasFlow(j) || j.Gather || at(1).ChancePermille(500) {
			keys[k] = key%sharedChunks + 1
		}
	}
	if at(2).ChancePermille(900) { // Otherwise a chunk may occur twice.
		slices.Sort(keys)
		keys = slices.Compact(keys)
	}
	return keys
}

// timeNear returns a time close to from, or later than from by about a time span of the plan.
func (c *condenser) timeNear(from time.Duration, at func(uint64) draw.Value) time.Duration {
	spans := c.DurationSettings()
	d := min(*spans[at(6).Below(uint64(len(spans)))], 3*time.Second)
	switch choice := at(5).Below(10); {
	case choice < 3: // No delay.
	case choice < 6:
		d = at(7).RoundedDuration(0, 2*d)
		fallthrough
	case choice < 9:
		from += d
	default:
		from += 2 * d
	}
	return max(0, from+at(8).RoundedDuration(0, 12*c.Delays.Message)-4*c.Delays.Message)
}

// condenseFaults keeps a few scheduled faults, moves them near jobs, and keeps the rates of a few kinds of faults.
func (c *condenser) condenseFaults() {
	var last time.Duration
	for i := range c.Jobs {
		last = max(last, c.Jobs[i].At)
	}
	c.Strikes, c.Spared = nil, nil
	kept := max(0, c.drawAt(81).Between(0, 5)-2)
	for len(c.Faults) > kept {
		i := int(c.drawAt(uint64(1<<10 + len(c.Faults))).Below(uint64(len(c.Faults))))
		c.Faults = slices.Delete(c.Faults, i, i+1)
	}
	for i := range c.Faults {
		at := func(n uint64) draw.Value { return c.drawAt(1<<13 | uint64(i)<<4 | n) }
		if f := &c.Faults[i]; len(c.Jobs) > 0 {
			f.At = c.timeNear(c.Jobs[at(4).Below(uint64(len(c.Jobs)))].At, at)
			if f.For > 0 {
				f.For = c.timeNear(0, func(n uint64) draw.Value { return at(n).Rehash() })
			}
			last = max(last, f.At)
		}
	}
	slices.SortStableFunc(c.Faults, func(a, b plan.ScheduledFault) int { return int(a.At - b.At) })
	kept = max(0, c.drawAt(82).Between(0, 5)-2)
	kinds := plan.Faults()
	kinds = slices.DeleteFunc(kinds, func(f plan.Fault) bool { return c.Rates[f] == 0 || f == plan.FaultLossUnnoticed })
	for len(kinds) > kept {
		i := int(c.drawAt(uint64(1<<11 + len(kinds))).Below(uint64(len(kinds))))
		delete(c.Rates, kinds[i])
		kinds = slices.Delete(kinds, i, i+1)
	}
	for _, f := range kinds {
		c.Rates[f] = max(c.Rates[f], c.drawAt(1<<14|uint64(f)).Between(50, 500))
	}
	c.FaultsEnd = last + c.drawAt(83).RoundedDuration(10*time.Millisecond, 2*c.Timeouts.Put)
}

// addPressure adds conditions that are seldom drawn together: replies that are lost while there is time to retry,
// planes that take as long as the leases, links that break and nodes that restart while work is in flight, and messages
// and imports that arrive late. Each condition is drawn independently, so that each also occurs with the earlier
// choices.
func (c *condenser) addPressure() {
	t, r := &c.Timeouts, c.Rates
	if c.drawAt(90).ChancePermille(250) {
		t.Alloc = max(16*c.Delays.Message, t.Put/time.Duration(c.drawAt(91).Between(8, 32)))
		t.Reply = t.Alloc + max(16*c.Delays.Message, t.Alloc/4)
		t.BackoffMin = min(t.BackoffMin, t.Reply/2)
		t.BackoffMax = min(t.BackoffMax, 2*t.Reply)
		lostFault := [...]plan.Fault{plan.FaultReplyLost, plan.FaultRequestLost}[c.drawAt(92).Below(2)]
		r[lostFault] = max(r[lostFault], c.drawAt(92).Rehash().Between(100, 500))
	}
	if c.drawAt(93).ChancePermille(250) {
		c.Delays.Device = min(t.Lease, t.PullTTL, t.Read) / time.Duration(c.drawAt(94).Between(16, 64))
		if c.Topology.Leased && c.drawAt(95).ChancePermille(500) {
			r[plan.FaultLateStore] = max(r[plan.FaultLateStore], c.drawAt(95).Rehash().Between(100, 500))
		}
	}
	if c.drawAt(96).ChancePermille(200) {
		r[plan.FaultMessageDelayed] = max(r[plan.FaultMessageDelayed], c.drawAt(97).Between(50, 400))
	}
	if len(c.Jobs) == 0 || !c.drawAt(98).ChancePermille(300) {
		return
	}
	kinds := [...]plan.Fault{plan.FaultCutLink, plan.FaultCutLink, plan.FaultCutConn, plan.FaultCrash}
	for i := range uint64(c.drawAt(99).Between(1, 3)) {
		at := func(n uint64) draw.Value { return c.drawAt(1<<15 | i<<4 | n) }
		x := plan.ScheduledFault{Fault: kinds[at(0).Below(uint64(len(kinds)))], Node: plan.Node(plan.NoNode)}
		x.Pick = at(1).Below(1000)
		if x.Fault == plan.FaultCrash {
			x.Node = plan.Node(at(2).Below(uint64(c.NodeCount())))
		}
		from := c.Jobs[at(3).Below(uint64(len(c.Jobs)))].At // Shortly after the job starts, when its work is in flight.
		x.At = from + at(4).RoundedDuration(0, max(8*c.Delays.Message, 4*c.Delays.Device))
		c.Faults = append(c.Faults, x)
		c.FaultsEnd = max(c.FaultsEnd, x.At+c.Delays.Message)
	}
	slices.SortStableFunc(c.Faults, func(a, b plan.ScheduledFault) int { return int(a.At - b.At) })
}
