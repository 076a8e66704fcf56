package sim

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems"
)

// draws implements [Draws].
type draws struct {
	seed, name uint64
	until      time.Duration // the instant at which faults end
	first      int           // number of the system's first node
	names      []string      // of the system's nodes, in order
}

// drawSystem is the label of draws for the systems of users.
const drawSystem draw.Label = 1024

// named64 returns a 64-bit hash of a name.
func named64(text string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(text))
	return h.Sum64()
}

func (d draws) at(what string, nth uint64) draw.Of {
	return draw.Hash(d.seed, drawSystem, draw.Mix(d.name, named64(what)), nth)
}

func (d draws) Below(what string, nth, n uint64) uint64 { return d.at(what, nth).Below(n) }

func (d draws) Span(what string, nth uint64, least, most time.Duration) time.Duration {
	return d.at(what, nth).Time(least, most)
}

func (d draws) Items(do string, least, most int, nodes ...string) []Item {
	if len(nodes) == 0 {
		nodes = d.names
	}
	for _, name := range nodes {
		if _, rank := plan.ParseNode(name); !rank && !slices.Contains(d.names, name) {
			panic(noNode{fmt.Errorf("Draws.Items: no node is called %q: give some of %s", name, strings.Join(d.names, ", "))})
		}
	}
	items := make([]Item, d.at(do, 0).Between(least, most))
	for i := range items {
		at := func(k uint64) draw.Of { return d.at(do, 1+8*uint64(i)+k) }
		name := nodes[at(1).Below(uint64(len(nodes)))]
		node, _ := plan.ParseNode(name)
		if n := slices.Index(d.names, name); n >= 0 {
			node = int32(d.first + n)
		}
		items[i] = Item{At: at(0).Time(0, d.until), Do: do, Node: plan.Node(node),
			Span: at(2).Time(10*time.Millisecond, 500*time.Millisecond), Number: uint32(at(3).Below(100))}
	}
	slices.SortStableFunc(items, func(a, b Item) int { return cmp.Compare(a.At, b.At) })
	return items
}

// Expand draws the plan of a seed for the system; a nil system is [PD]. Systems without ranks distinguish only the
// profile calm, which has no faults, from the remaining profiles.
func (s *System) Expand(seed uint64, profile string) (plan.Plan, error) {
	if s.isPD() {
		return systems.Expand(seed, profile)
	}
	if err := s.check(); err != nil {
		return plan.Plan{}, err
	}
	p := NewPlan()
	p.Seed, p.Rates = seed, map[plan.Fault]int{}
	if s.hasRanks() {
		var err error
		if p, err = systems.Expand(seed, s.ranksProfile(profile)); err != nil {
			return p, err
		}
	} else if err := CheckProfile(profile); err != nil {
		return p, err
	}
	p.System, p.Profile = s.Name, profile
	who, err := s.castOf(&p)
	if err != nil {
		return p, err
	}
	if !s.hasRanks() {
		drawAlone(&p)
		if profile != "calm" {
			drawRates(&p, s)
		}
	}
	drawClocks(&p, &who)
	for _, part := range s.machines() {
		d := drawsOf(&p, part, &who)
		if profile != "calm" {
			drawFaults(&p, d, &who)
		}
		if part.Draw != nil {
			before := p.Items
			p.Items = nil
			if err := part.draw(d, &p); err != nil {
				return p, err
			}
			p.Items = append(before, p.Items...)
		}
	}
	slices.SortStableFunc(p.Faults, func(a, b plan.Scheduled) int { return cmp.Compare(a.At, b.At) })
	slices.SortStableFunc(p.Items, func(a, b Item) int { return cmp.Compare(a.At, b.At) })
	return p, nil
}

// ranksProfile returns the profile with which the ranks of a join are drawn if a run requests the given profile.
func (s *System) ranksProfile(requested string) string {
	for _, part := range s.machines() {
		if part.Ranks != "" {
			return part.Ranks
		}
	}
	return requested
}

// draw calls the Draw function of a user's system. A panic in that function is a mistake of the user and is returned as
// an error.
func (s *System) draw(d draws, p *plan.Plan) (err error) {
	defer recovered(&err, fmt.Sprintf("sim: system %s: Draw", s.Name))
	s.Draw(d, p)
	return nil
}

// drawAlone draws the delays and the end of faults for a plan without ranks, where [systems.Expand] did not draw them.
func drawAlone(p *plan.Plan) {
	at := func(n uint64) draw.Of { return draw.Hash(p.Seed, drawSystem, 0, n) }
	p.Delays.Message = at(0).Time(100*time.Microsecond, 5*time.Millisecond)
	p.FaultsEnd = at(1).Time(500*time.Millisecond, 3*time.Second)
}

// drawRates draws the rates of the faults that have no scheduled instant. Faults that corrupt messages need a system
// that can recognize its messages (IsWellFormed).
func drawRates(p *plan.Plan, s *System) {
	rates := p.DrawRates("")
	spoils := slices.ContainsFunc(s.all(), func(part *System) bool { return part.Legible != nil })
	for _, f := range ownRates {
		if rates[f] > 0 && (spoils || f != plan.FaultCorruptRequest && f != plan.FaultCorruptReply) {
			p.Rates[f] = rates[f]
		}
	}
}

// The faults of processes and networks, which are independent of what the processes run. The first list has rates, the
// second has scheduled instants.
//
//kvferry:table
var (
	ownRates = []plan.Fault{plan.FaultRequestLost, plan.FaultReplyLost, plan.FaultUnnoticed, plan.FaultRefused,
		plan.FaultDelay, plan.FaultDoubled, plan.FaultCorruptRequest, plan.FaultCorruptReply}
	ownScheduled = []plan.Fault{plan.FaultCrash, plan.FaultPause, plan.FaultCutConn, plan.FaultNoise, plan.FaultTwice,
		plan.FaultFreeze, plan.FaultSlow, plan.FaultPartition, plan.FaultDeafPartition, plan.FaultFlapping, plan.FaultReset}
)

// drawClocks draws the clock drift of users' nodes. Beside ranks the drift stays within the range of the ranks' clocks.
func drawClocks(p *plan.Plan, who *cast) {
	for len(p.Topology.DriftPPM) < who.ranks {
		p.Topology.DriftPPM = append(p.Topology.DriftPPM, 0)
	}
	least, most := slices.Min(append(p.Topology.DriftPPM, 0)), slices.Max(append(p.Topology.DriftPPM, 0))
	if who.ranks == 0 {
		p.Topology.DriftPPM = nil
	}
	for i := range who.own {
		of := &who.own[i]
		if who.ranks == 0 {
			most = cmp.Or(of.system.DriftPPM, 200)
			least = -most
		}
		d := draw.Hash(p.Seed, drawSystem, draw.Mix(named64(of.system.Name), named64(of.Name)), 0)
		p.Topology.DriftPPM = append(p.Topology.DriftPPM, d.Between(least, most))
	}
}

// ownSwarm is the probability, in permille, that a kind of fault occurs at the nodes of a user's system. The
// probability is high because these nodes have fewer kinds of faults than ranks have.
const ownSwarm = 500

// drawsOf returns the draws of a system in a plan.
func drawsOf(p *plan.Plan, s *System, who *cast) draws {
	d := draws{seed: p.Seed, name: named64(s.Name), until: p.FaultsEnd}
	var count int
	d.first, count = who.of(s.Name)
	for i := range count {
		d.names = append(d.names, who.own[d.first-who.ranks+i].Name)
	}
	return d
}

// drawFaults draws the scheduled faults of the nodes of a system.
func drawFaults(p *plan.Plan, d draws, who *cast) {
	var listen []int
	for i := range d.names {
		if len(who.own[d.first-who.ranks+i].Serves) > 0 {
			listen = append(listen, d.first+i)
		}
	}
	for _, f := range ownScheduled {
		least, most := f.Intensity()
		on := d.at("fault "+f.String(), 0)
		if !on.Permille(ownSwarm) || f == plan.FaultNoise && len(listen) == 0 {
			continue
		}
		for i := range on.Again().Between(least, most) {
			at := func(k uint64) draw.Of { return d.at("fault "+f.String(), 1+8*uint64(i)+k) }
			x := plan.Scheduled{Fault: f, At: at(0).Time(0, p.FaultsEnd),
				Node: plan.Node(d.first + int(at(1).Below(uint64(len(d.names)))))}
			switch f {
			case plan.FaultCrash:
				ownMoment(&x, at)
			case plan.FaultNoise:
				x.Node, x.Pick = plan.Node(listen[at(1).Below(uint64(len(listen)))]), at(2).Below(100_000)
			default:
				p.Detail(&x, at)
			}
			p.Faults = append(p.Faults, x)
		}
	}
}

// ownMoment draws the moment of a crash. Half of the crashes happen in the middle of a step that sends or reports
// something.
func ownMoment(x *plan.Scheduled, at func(uint64) draw.Of) {
	if at(2).Permille(500) {
		telling := [...]effects.Kind{plan.AnyEffect, effects.KindOpen, effects.KindSend, effects.KindReply,
			effects.KindDeliver, effects.KindObserve}
		m := plan.Moment{Is: true, After: at(3).Permille(500), Effect: telling[at(4).Below(uint64(len(telling)))]}
		x.When = m.String()
		x.Nth = at(5).Below(4)
	}
}

// WithFaults returns the plan with the faults that a seed draws, in the same way as [System.Expand] does. A nil system
// is [PD].
func (s *System) WithFaults(p plan.Plan, seed uint64) (plan.Plan, error) {
	if s.isPD() {
		return p.WithFaults(seed), nil
	}
	who, err := s.castOf(&p)
	if err != nil {
		return p, err
	}
	if s.hasRanks() {
		p = p.WithFaults(seed)
	} else {
		p.Seed, p.Rates, p.Strikes, p.Spared, p.Faults = seed, map[plan.Fault]int{}, nil, nil, nil
		drawRates(&p, s)
	}
	for _, part := range s.machines() {
		drawFaults(&p, drawsOf(&p, part, &who), &who)
	}
	slices.SortStableFunc(p.Faults, func(a, b plan.Scheduled) int { return cmp.Compare(a.At, b.At) })
	return p, nil
}
