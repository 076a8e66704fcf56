// Package expand turns a seed into a plan for prefill and decode nodes: topology, timeouts and limits, jobs, faults and
// their rates. A profile restricts the choices. Each random choice is keyed by its purpose, so that an additional
// choice leaves the existing choices unchanged. The same seed and profile always give the same plan.
//
// Example: Plan(7, "pull", nil) draws a world in which every sender offers its chunks to be read, then the jobs, then
// the scheduled faults, and returns the plan, which the simulator runs.
package expand

import (
	"slices"
	"time"

	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// Profiles lists the built-in profile names of [Plan].
//
//kvferry:table
var Profiles = []string{
	"swarm", "calm", "crash", "fenced", "leased", "starve", "upstream", "pull", "delayed", "full", "hccl", "cache",
	"foreign", "both", "edge",
}

// DefaultProfile is the profile that does not restrict the choices.
const DefaultProfile = "swarm"

// A Profile is an additional profile that another package defines to restrict or change the choices.
type Profile struct {
	Name       string
	AfterWorld func(d *Draft) // called after topology, timeouts and limits are drawn
	AfterJobs  func(d *Draft) // called after the jobs are drawn and before the faults are drawn
	// AfterCondense is called after a plan of the profile was condensed, which sets the sizes of the pools.
	AfterCondense func(p *plan.Plan)
}

// A Draft is an unfinished plan.
type Draft struct {
	*plan.Plan
	Scale Scale
}

// DrawCaches draws receivers that keep chunks which no request expects any more.
func DrawCaches(d *Draft) { drawCaches(d.Plan, &d.Scale) }

// Scale holds the sizes of the workload and the numbers of scheduled faults, before the individual jobs and faults are
// drawn.
type Scale struct {
	Jobs      int
	BatchMax  int
	Groups    int // number of groups of jobs that share their first chunks
	Window    time.Duration
	Early     int  // jobs per thousand
	Plain     int  // jobs per thousand
	PlainTo   int  // jobs per thousand, of pull senders
	Whole     int  // jobs per thousand, of jobs that are not plain
	Ring      bool // each node sends to the next node
	Scheduled [plan.FaultCount]int
}

// Plan draws the plan of a seed in a built-in profile or, if added is not nil, in that additional profile.
func Plan(seed uint64, profile string, added *Profile) plan.Plan {
	p := plan.Plan{Version: plan.Version, Seed: seed, Profile: profile, Rates: map[plan.Fault]int{}}
	d := Draft{Plan: &p}
	if added == nil {
		added = &Profile{}
	}
	drawWorld(&d, profile, added)
	drawJobs(&p, &d.Scale)
	drawReads(&p)
	drawEnds(&p, profile)
	if added.AfterJobs != nil {
		added.AfterJobs(&d)
	}
	p.DrawFaults(&d.Scale.Scheduled)
	drawConjunction(&p, profile)
	drawOverload(&p, profile)
	drawForeignNodes(&p, profile)
	drawBounds(&p, profile)
	drawTuning(&p)
	drawRefusingPeer(&p, profile)
	drawWithdrawnOffers(&p, profile)
	drawEdgeCase(&p, profile)
	drawAddresses(&p)
	drawHosts(&p, profile)
	return p
}

// drawWorld draws everything except the lists of jobs and faults. Every line uses a separate ordinal, so that a new
// line leaves the existing choices unchanged.
func drawWorld(d *Draft, profile string, added *Profile) {
	p, s := d.Plan, &d.Scale
	at := func(n uint64) draw.Value { return draw.Hash(p.Seed, draw.Plan, 0, n) }
	pages := func(n uint64, lo, hi int) uint32 { return uint32(at(n).Between(lo, hi)) }
	span := func(n uint64, lo, hi time.Duration) time.Duration { return at(n).RoundedDuration(lo, hi) }
	const ms = time.Millisecond
	*s = Scale{Jobs: at(6).Between(4, 60), BatchMax: at(7).Between(1, 4), Groups: at(8).Between(1, 5),
		Window: span(9, 200*ms, 8*time.Second)}
	p.Topology = plan.Topology{Senders: at(1).Between(1, 3), Receivers: at(2).Between(1, 2), Leased: at(3).ChancePermille(400),
		SenderPages: pages(4, 4, 32), ReceiverPages: pages(5, 4, 32), Mismatch: at(64).ChancePermille(80)}
	p.Delays = plan.Delays{Message: span(10, ms/10, 5*ms), Device: span(11, ms/50, 4*ms),
		Scatter: plan.New().Delays.Scatter}
	alloc, lease := span(20, 50*ms, 1500*ms), span(21, 400*ms, 4*time.Second)
	p.Timeouts = plan.Timeouts{Put: span(24, 300*ms, 6*time.Second), Reserve: span(25, 100*ms, 3*time.Second),
		Alloc: alloc, Reply: alloc + span(23, 50*ms, 500*ms), Lease: lease, LeaseGuard: lease / 8,
		Residual: span(22, 50*ms, time.Second),
		ClaimTTL: span(26, 500*ms, 10*time.Second), BackoffMin: span(27, 5*ms, 50*ms), BackoffMax: span(28, 50*ms, 800*ms),
		GetWaitMax: span(29, 200*ms, 4*time.Second), PullTTL: plan.New().Timeouts.PullTTL, Read: plan.New().Timeouts.Read,
		Fetch: plan.New().Timeouts.Fetch, Lead: plan.New().Timeouts.Lead, Loan: plan.New().Timeouts.Loan}
	if profile == "full" && at(90).ChancePermille(600) {
		p.Timeouts.Breaker = at(90).Rehash().RoundedDuration(20*ms, 1500*ms)
	}
	p.Bounds = plan.New().Bounds
	p.Bounds.Overtakes, p.Bounds.PeerSharePct = pages(30, 1, 16), min(pages(31, 60, 140), 100)
	if at(32).ChancePermille(250) { // Small tables, which are often full.
		p.Bounds.Puts, p.Bounds.Reserves, p.Bounds.Gets = pages(33, 1, 4), pages(34, 1, 6), pages(35, 1, 4)
		p.Bounds.Waiters, p.Bounds.Requests, p.Bounds.Grants = pages(36, 1, 3), pages(37, 4, 16), pages(38, 1, 4)
		p.Bounds.Peers = pages(39, 1, 4)
	}
	if at(50).ChancePermille(330) {
		s.Early = at(50).Rehash().Between(100, 1000)
	}
	if at(82).ChancePermille(330) {
		s.Plain = at(82).Rehash().Between(50, 600)
	}
	p.Topology.Trust = at(83).ChancePermille(400)
	if at(84).ChancePermille(400) {
		p.Topology.Reply = protocol.ReplyForm(at(84).Rehash().Between(int(protocol.FormSync),
			int(protocol.FormAsync2))).String()
	}
	if at(80).ChancePermille(600) {
		for i := range p.NodeCount() {
			drift := draw.Hash(p.Seed, draw.Clock, uint64(i), 1).Between(-world.DriftMax, world.DriftMax)
			if at(81).ChancePermille(300) { // The largest tolerated drift.
				drift = world.DriftMax
				if i < p.Topology.Senders {
					drift = -world.DriftMax
				}
			}
			p.Topology.DriftPPM = append(p.Topology.DriftPPM, drift)
		}
	}
	switch profile {
	case "pull", "edge":
		drawPullSenders(p, profile)
	case "delayed", "full", "foreign":
		drawPullSenders(p, profile)
		drawOfferKeepers(p, profile)
	case "hccl":
		drawCommunicators(p)
	case "both":
		drawMixedNodes(p, s)
	case "cache":
		drawCaches(p, s)
	}
	if added.AfterWorld != nil {
		added.AfterWorld(d)
	}
	if len(p.Topology.Pull) > 0 && draw.Hash(p.Seed, draw.Plan, 2, 24).ChancePermille(330) {
		s.PlainTo = draw.Hash(p.Seed, draw.Plan, 2, 25).Between(50, 600)
	}
	if at(112).ChancePermille(150) { // Some calls are too large for one put.
		s.Whole = at(112).Rehash().Between(100, 700)
	}
	rates := p.DrawRates(profile)
	switch profile {
	case "calm":
		p.Topology.Mismatch = false
	case "hccl":
		s.Plain, s.PlainTo = 0, 0
		drawEpochFaults(s, &rates, at)
	case "crash":
		rates[plan.FaultCrash] = at(70).Between(1, 6)
	case "fenced":
		p.Topology.Leased = false
	case "leased":
		p.Topology.Leased, rates[plan.FaultLateStore] = true, at(71).Between(50, 400)
		if at(98).ChancePermille(500) { // A lease may end in the middle of a batch.
			p.Delays.Device = span(99, 4*ms, 40*ms)
		}
	case "starve":
		s.Jobs *= 4
		s.Window = span(78, 500*ms, 6*time.Second)
		p.Delays.Message = span(101, ms/10, ms)
		p.Timeouts.Alloc += 2 * time.Second
		p.Timeouts.Reply += 2 * time.Second
		p.Timeouts.Put += 4 * time.Second
		p.Bounds = plan.New().Bounds
		if at(75).ChancePermille(700) {
			p.Bounds.Peers = pages(76, 1, 2)
		}
		p.Topology.Senders, p.Topology.SenderPages = at(77).Between(3, 5), pages(72, 3, 5)
		p.Topology.Receivers, p.Topology.ReceiverPages = 1, pages(73, 4, 7)
		p.Bounds.Overtakes = pages(74, 1, 2)
		if at(79).ChancePermille(500) {
			s.Plain = at(79).Rehash().Between(300, 700)
		}
		if at(100).ChancePermille(700) { // With more faults, a request would fail before starving.
			for _, f := range plan.Faults() {
				if !f.IsCalm() {
					rates[f] = 0
				}
			}
		}
	case "both":
		drawPageContest(p, s, &rates)
	case "upstream":
		p.Topology.Leased, p.Topology.Trust = at(90).ChancePermille(700), at(91).ChancePermille(700)
		p.Topology.Reply = protocol.ReplyForm(at(92).Between(int(protocol.FormSync), int(protocol.FormAsync2))).String()
		p.Topology.Senders, p.Topology.ReceiverPages, p.Bounds.Peers = at(93).Between(2, 3), pages(94, 4, 10), pages(95, 1, 3)
		s.Plain, s.Early = at(96).Between(200, 700), at(97).Between(300, 1000)
	}
	// Some profiles have fewer nodes than clocks were drawn for.
	p.Topology.DriftPPM = p.Topology.DriftPPM[:min(len(p.Topology.DriftPPM), p.NodeCount())]
	p.SetIntensities(rates, &s.Scheduled)
	s.BatchMax = min(s.BatchMax, int(p.Topology.SenderPages), int(p.Topology.ReceiverPages))
	p.FaultsEnd = s.Window + time.Second
}

// drawPullSenders draws which senders offer their chunks to be read, and their limits.
func drawPullSenders(p *plan.Plan, profile string) {
	at := func(n uint64) draw.Value { return draw.Hash(p.Seed, draw.Plan, 2, n) }
	for i := range p.Topology.Senders {
		if profile == "pull" || at(uint64(i)).ChancePermille(400) {
			p.Topology.Pull = append(p.Topology.Pull, plan.Node(i))
		}
	}
	p.Timeouts.PullTTL = at(20).RoundedDuration(p.Timeouts.Lease/2, p.Timeouts.Lease)
	p.Timeouts.Read = at(23).RoundedDuration(100*time.Millisecond, 3*time.Second)
	p.Bounds.ReservePPM = 20_000
	if at(21).ChancePermille(500) { // A reserve so large that offers wait for each other.
		p.Bounds.ReservePPM = uint32(at(22).Between(0, 500_000))
	}
}

// endProfiles are the profiles in which senders' engines report how some requests ended.
//
//kvferry:table
var endProfiles = []string{"swarm", "crash", "fenced", "leased", "delayed", "full"}

// drawEnds draws the requests whose end their senders report.
func drawEnds(p *plan.Plan, profile string) {
	if !slices.Contains(endProfiles, profile) || !draw.Hash(p.Seed, draw.Plan, 23, 0).ChancePermille(800) {
		return
	}
	for i := range p.Jobs {
		d := draw.Hash(p.Seed, draw.Plan, 23, 1+uint64(i))
		if j := &p.Jobs[i]; !j.Plain && !j.PlainTo && !j.Gather && d.ChancePermille(600) {
			j.Flags = j.Flags.With(plan.ReportsEnd)
			j.Early = j.Early || d.Rehash().ChancePermille(500) // A reader waits for the request when it ends.
		}
	}
}

// drawJobs draws the workload.
func drawJobs(p *plan.Plan, s *Scale) {
	p.Jobs = slices.Grow(p.Jobs, s.Jobs)
	for i := range s.Jobs {
		at := func(n uint64) draw.Value { return draw.Hash(p.Seed, draw.Workload, uint64(i), n) }
		j := plan.Job{Request: uint32(i), From: plan.Node(at(0).Below(uint64(p.Topology.Senders))),
			To:    p.ReceiverAt(int(at(0).Rehash().Below(uint64(p.Topology.Receivers)))),
			Early: at(1).ChancePermille(s.Early), Plain: at(8).ChancePermille(s.Plain), Batch: at(6).Between(1, s.BatchMax),
			At: at(7).RoundedDuration(0, s.Window)}
		j.PlainTo = !j.Plain && slices.Contains(p.Topology.Pull, j.From) && at(9).ChancePermille(s.PlainTo)
		if s.Ring || j.To == j.From { // No node sends to itself.
			j.To = plan.Node((int(j.From) + 1) % p.NodeCount())
		}
		group := uint32(at(2).Below(uint64(s.Groups)))
		j.Whole = !j.Plain && at(10).ChancePermille(s.Whole)
		shared, unshared := at(3).Between(0, 6), at(4).Between(0, 4)
		j.Keys = make([]uint32, 0, shared+unshared+2)
		for k := range shared {
			j.Keys = append(j.Keys, group*8+uint32(k)+1)
		}
		for k := range unshared {
			j.Keys = append(j.Keys, plan.FirstUnsharedKey+uint32(i)*8+uint32(k))
		}
		if len(j.Keys) == 0 {
			j.Keys = append(j.Keys, plan.FirstUnsharedKey+uint32(i)*8)
		}
		if at(5).ChancePermille(60) {
			j.Keys = append(j.Keys, j.Keys[0]) // A key may come twice.
		}
		p.Jobs = append(p.Jobs, j)
	}
}
