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
	var scheduled [FaultCount]int
	p.SetIntensities(p.DrawRates(""), &scheduled)
	p.DrawFaults(&scheduled)
	return p
}

// SetIntensities puts the intensities of scheduled faults into scheduled, and the rates of all remaining faults into
// the plan.
func (p *Plan) SetIntensities(rates [FaultCount]int, scheduled *[FaultCount]int) {
	for f, rate := range rates {
		switch {
		case Fault(f).IsScheduled():
			scheduled[f] = rate
		case rate > 0:
			p.Rates[Fault(f)] = rate
		}
	}
}

// faultOnPermille is the probability, in permille, that a fault is on. Most faults are off in most seeds, so that each
// fault also occurs alone.
const faultOnPermille = 330

// DrawRates draws the intensity of each fault.
func (p *Plan) DrawRates(profile string) [FaultCount]int {
	var rates [FaultCount]int
	for _, f := range Faults() {
		d, form := draw.Hash(p.Seed, draw.Plan, 1, uint64(f)), &faultInfos[f]
		if form.always || d.ChancePermille(faultOnPermille) {
			rates[f] = d.Rehash().Between(form.lo, form.hi)
		}
		if profile == "full" && !form.always { // All faults at once, each less often.
			rates[f] = d.Rehash().Between(form.lo, form.lo+(form.hi-form.lo)/4)
		}
		if form.foreign || form.special {
			rates[f] = 0
			if form.foreign && profile == "foreign" {
				rates[f] = d.Rehash().Between(form.lo, form.hi)
			}
		}
		if profile == "calm" && !form.calm || form.pull && len(p.Topology.Pull) == 0 ||
			form.delay && len(p.Topology.Delay) == 0 ||
			form.communicators != p.Topology.Communicators && (form.communicators || f == FaultRankAlone) {
			rates[f] = 0
		}
	}
	return rates
}

// DrawFaults draws when and where each scheduled fault starts.
func (p *Plan) DrawFaults(scheduled *[FaultCount]int) {
	for f, count := range scheduled {
		for i := range count {
			at := func(n uint64) draw.Value { return draw.Hash(p.Seed, draw.FirstSchedule+draw.Label(f), uint64(i), n) }
			p.Faults = append(p.Faults, ScheduledFault{Fault: Fault(f), At: at(0).RoundedDuration(0, p.FaultsEnd),
				Node: Node(at(1).Below(uint64(p.NodeCount())))})
			p.DrawDetails(&p.Faults[len(p.Faults)-1], at)
		}
	}
	slices.SortStableFunc(p.Faults, func(a, b ScheduledFault) int { return int(a.At - b.At) })
}

// DrawDetails draws the details of a scheduled fault other than its instant and node.
func (p *Plan) DrawDetails(x *ScheduledFault, at func(uint64) draw.Value) {
	if drawDetails := detailDraws[x.Fault]; drawDetails != nil {
		drawDetails(p, x, at)
	}
}

// IntensityRange returns the range from which the fault's intensity is drawn.
func (f Fault) IntensityRange() (least, most int) { return faultInfos[f].lo, faultInfos[f].hi }

// detailDraws draw the details of each kind of scheduled fault other than its instant and node.
var detailDraws = [FaultCount]func(p *Plan, x *ScheduledFault, at func(uint64) draw.Value){
	FaultCrash: drawStepMoment, FaultRankAlone: drawStepMoment,
	FaultPause: func(_ *Plan, x *ScheduledFault, at func(uint64) draw.Value) {
		x.For = at(2).RoundedDuration(time.Millisecond, 2*time.Second)
	},
	FaultFreeze: func(p *Plan, x *ScheduledFault, at func(uint64) draw.Value) {
		x.For = at(2).RoundedDuration(p.Timeouts.Lease, 3*p.Timeouts.Lease)
	},
	FaultSlowNode: drawDuration, FaultDrain: drawDuration, FaultPartition: drawDuration, FaultOneWayPartition: drawDuration,
	FaultFlappingPartition: drawDuration,
	FaultCutConn:           drawTarget,
	FaultCutLink:           drawTarget,
	FaultNoise:             drawListener,
	FaultHostileMessage:    drawListener,
	FaultGreedyPeer: func(p *Plan, x *ScheduledFault, at func(uint64) draw.Value) {
		x.Node = p.ReceiverAt(int(at(1).Below(uint64(p.Topology.Receivers))))
		x.Pick = at(2).Below(100_000)
	},
	FaultDoneForged: func(p *Plan, x *ScheduledFault, at func(uint64) draw.Value) {
		x.Node, x.Pick = p.Topology.Pull[at(1).Below(uint64(len(p.Topology.Pull)))], at(2).Below(100_000)
	},
}

// drawStepMoment draws the moment of a fault that mostly happens in the middle of a step.
func drawStepMoment(_ *Plan, x *ScheduledFault, at func(uint64) draw.Value) {
	if !at(2).ChancePermille(300) {
		x.When = DrawMoment(at(3)).String()
		x.Nth = at(4).Below(4)
	}
}

// drawListener draws the target of a message to a port: a receiver, or a sender that offers its chunks to be read.
func drawListener(p *Plan, x *ScheduledFault, at func(uint64) draw.Value) {
	x.Node = p.ReceiverAt(int(at(1).Below(uint64(p.Topology.Receivers))))
	x.Pick = at(2).Below(100_000)
	if pulls := p.Topology.Pull; len(pulls) > 0 && at(3).ChancePermille(500) {
		x.Node = pulls[at(3).Rehash().Below(uint64(len(pulls)))]
	}
}

// drawDuration draws the duration of a fault.
func drawDuration(_ *Plan, x *ScheduledFault, at func(uint64) draw.Value) {
	x.For, x.Pick = at(2).RoundedDuration(20*time.Millisecond, 2*time.Second), at(3).Below(1000)
}

// drawTarget draws which of the existing connections or links the fault strikes, at any node.
func drawTarget(_ *Plan, x *ScheduledFault, at func(uint64) draw.Value) {
	x.Node, x.Pick = Node(NoNode), at(2).Below(1000)
}
