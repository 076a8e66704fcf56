package plan

import (
	"slices"
	"time"

	"github.com/kvferry/kvferry/sim/draw"
)

// WithFaults returns the plan with faults drawn from a seed, in the same way as Expand of package sim draws them: most
// kinds are off for most seeds.
func (p Plan) WithFaults(seed uint64) Plan {
	p.Seed, p.Rates, p.Strikes, p.Spared, p.Faults = seed, map[Fault]int{}, nil, nil, nil
	var scheduled [FaultKinds]int
	p.Share(p.DrawRates(""), &scheduled)
	p.DrawFaults(&scheduled)
	return p
}

// SetIntensities puts the intensities of scheduled faults into scheduled, and the rates of all remaining faults into
// the plan.
func (p *Plan) Share(rates [FaultKinds]int, scheduled *[FaultKinds]int) {
	for f, rate := range rates {
		switch {
		case Fault(f).Scheduled():
			scheduled[f] = rate
		case rate > 0:
			p.Rates[Fault(f)] = rate
		}
	}
}

// swarm is the probability, in permille, that a fault is on. Most faults are off in most seeds, so that each fault also
// occurs alone.
const swarm = 330

// DrawRates draws the intensity of each fault.
func (p *Plan) DrawRates(profile string) [FaultKinds]int {
	var rates [FaultKinds]int
	for _, f := range Faults() {
		d, form := draw.Hash(p.Seed, draw.Plan, 1, uint64(f)), &faultForms[f]
		if form.always || d.Permille(swarm) {
			rates[f] = d.Again().Between(form.lo, form.hi)
		}
		if profile == "full" && !form.always { // All faults at once, each less often.
			rates[f] = d.Again().Between(form.lo, form.lo+(form.hi-form.lo)/4)
		}
		if form.foreign || form.story {
			rates[f] = 0
			if form.foreign && profile == "foreign" {
				rates[f] = d.Again().Between(form.lo, form.hi)
			}
		}
		if profile == "calm" && !form.calm || form.pull && len(p.Topology.Pull) == 0 ||
			form.delay && len(p.Topology.Delay) == 0 ||
			form.comm != p.Topology.Communicators && (form.comm || f == FaultAlone) {
			rates[f] = 0
		}
	}
	return rates
}

// DrawFaults draws when and where each scheduled fault starts.
func (p *Plan) DrawFaults(scheduled *[FaultKinds]int) {
	for f, count := range scheduled {
		for i := range count {
			at := func(n uint64) draw.Of { return draw.Hash(p.Seed, draw.Schedule+draw.Label(f), uint64(i), n) }
			p.Faults = append(p.Faults, Scheduled{Fault: Fault(f), At: at(0).Time(0, p.FaultsEnd),
				Node: Node(at(1).Below(uint64(p.NodeCount())))})
			p.Detail(&p.Faults[len(p.Faults)-1], at)
		}
	}
	slices.SortStableFunc(p.Faults, func(a, b Scheduled) int { return int(a.At - b.At) })
}

// Detail draws the details of a scheduled fault other than its instant and node.
func (p *Plan) Detail(x *Scheduled, at func(uint64) draw.Of) {
	if drawn := scheduleDraws[x.Fault]; drawn != nil {
		drawn(p, x, at)
	}
}

// Intensity returns the range from which the fault's intensity is drawn.
func (f Fault) Intensity() (least, most int) { return faultForms[f].lo, faultForms[f].hi }

// scheduleDraws draw the details of each kind of scheduled fault other than its instant and node.
var scheduleDraws = [FaultKinds]func(p *Plan, x *Scheduled, at func(uint64) draw.Of){
	FaultCrash: atAMoment, FaultAlone: atAMoment,
	FaultPause: func(_ *Plan, x *Scheduled, at func(uint64) draw.Of) {
		x.For = at(2).Time(time.Millisecond, 2*time.Second)
	},
	FaultFreeze: func(p *Plan, x *Scheduled, at func(uint64) draw.Of) {
		x.For = at(2).Time(p.Timeouts.Lease, 3*p.Timeouts.Lease)
	},
	FaultSlow: forAWhile, FaultDrain: forAWhile, FaultPartition: forAWhile, FaultDeafPartition: forAWhile,
	FaultFlapping: forAWhile,
	FaultCutConn:  anyOfThem,
	FaultCutLink:  anyOfThem,
	FaultNoise:    anyListener,
	FaultHostile:  anyListener,
	FaultGreedy: func(p *Plan, x *Scheduled, at func(uint64) draw.Of) {
		x.Node = p.Receiver(int(at(1).Below(uint64(p.Topology.Receivers))))
		x.Pick = at(2).Below(100_000)
	},
	FaultForged: func(p *Plan, x *Scheduled, at func(uint64) draw.Of) {
		x.Node, x.Pick = p.Topology.Pull[at(1).Below(uint64(len(p.Topology.Pull)))], at(2).Below(100_000)
	},
}

// drawStepMoment draws the moment of a fault that mostly happens in the middle of a step.
func atAMoment(_ *Plan, x *Scheduled, at func(uint64) draw.Of) {
	if !at(2).Permille(300) {
		x.When = DrawMoment(at(3)).String()
		x.Nth = at(4).Below(4)
	}
}

// drawListener draws the target of a message to a port: a receiver, or a sender that offers its chunks to be read.
func anyListener(p *Plan, x *Scheduled, at func(uint64) draw.Of) {
	x.Node = p.Receiver(int(at(1).Below(uint64(p.Topology.Receivers))))
	x.Pick = at(2).Below(100_000)
	if pulls := p.Topology.Pull; len(pulls) > 0 && at(3).Permille(500) {
		x.Node = pulls[at(3).Again().Below(uint64(len(pulls)))]
	}
}

// drawDuration draws the duration of a fault.
func forAWhile(_ *Plan, x *Scheduled, at func(uint64) draw.Of) {
	x.For, x.Pick = at(2).Time(20*time.Millisecond, 2*time.Second), at(3).Below(1000)
}

// drawTarget draws which of the existing connections or links the fault strikes, at any node.
func anyOfThem(_ *Plan, x *Scheduled, at func(uint64) draw.Of) {
	x.Node, x.Pick = Node(Nobody), at(2).Below(1000)
}
