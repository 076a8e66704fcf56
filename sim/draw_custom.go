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

// customDraws implements [Draws].
type customDraws struct {
	seed, name uint64
	faultsEnd  time.Duration // the instant at which faults end
	firstNode  int           // number of the system's first node
	nodeNames  []string      // of the system's nodes, in order
}

// customLabel is the label of draws for the systems of users.
const customLabel draw.Label = 1024

// hashName returns a 64-bit hash of a name.
func hashName(text string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(text))
	return h.Sum64()
}

func (d customDraws) drawAt(what string, nth uint64) draw.Value {
	return draw.Hash(d.seed, customLabel, draw.Mix(d.name, hashName(what)), nth)
}

func (d customDraws) NumberBelow(what string, nth, n uint64) uint64 {
	return d.drawAt(what, nth).Below(n)
}

func (d customDraws) Duration(what string, nth uint64, least, most time.Duration) time.Duration {
	return d.drawAt(what, nth).RoundedDuration(least, most)
}

func (d customDraws) Items(do string, least, most int, nodes ...string) []Item {
	if len(nodes) == 0 {
		nodes = d.nodeNames
	}
	for _, name := range nodes {
		if _, isRank := plan.ParseNode(name); !isRank && !slices.Contains(d.nodeNames, name) {
			panic(nodeNameError{fmt.Errorf("Draws.Items: no node is called %q: the nodes are %s", name, strings.Join(d.nodeNames, ", "))})
		}
	}
	items := make([]Item, d.drawAt(do, 0).Between(least, most))
	for i := range items {
		at := func(k uint64) draw.Value { return d.drawAt(do, 1+8*uint64(i)+k) }
		name := nodes[at(1).Below(uint64(len(nodes)))]
		node, _ := plan.ParseNode(name)
		if n := slices.Index(d.nodeNames, name); n >= 0 {
			node = int32(d.firstNode + n)
		}
		items[i] = Item{At: at(0).RoundedDuration(0, d.faultsEnd), Do: do, Node: plan.Node(node),
			Span: at(2).RoundedDuration(10*time.Millisecond, 500*time.Millisecond), Number: uint32(at(3).Below(100))}
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
	if err := s.checkParts(); err != nil {
		return plan.Plan{}, err
	}
	p := NewPlan()
	p.Seed, p.Rates = seed, map[plan.Fault]int{}
	if s.hasRanks() {
		var err error
		if p, err = systems.Expand(seed, s.rankProfileFor(profile)); err != nil {
			return p, err
		}
	} else if err := CheckProfile(profile); err != nil {
		return p, err
	}
	p.System, p.Profile = s.Name, profile
	nodes, err := s.newNodeSet(&p)
	if err != nil {
		return p, err
	}
	if !s.hasRanks() {
		drawWithoutRanks(&p)
		if profile != "calm" {
			drawCustomRates(&p, s)
		}
	}
	drawDrifts(&p, &nodes)
	for _, part := range s.customParts() {
		d := drawsFor(&p, part, &nodes)
		if profile != "calm" {
			drawCustomFaults(&p, d, &nodes)
		}
		if part.Draw != nil {
			drawn := p.Items
			p.Items = nil
			if err := part.callDraw(d, &p); err != nil {
				return p, err
			}
			p.Items = append(drawn, p.Items...)
		}
	}
	slices.SortStableFunc(p.Faults, func(a, b plan.ScheduledFault) int { return cmp.Compare(a.At, b.At) })
	slices.SortStableFunc(p.Items, func(a, b Item) int { return cmp.Compare(a.At, b.At) })
	return p, nil
}

// rankProfileFor returns the profile with which the ranks of a join are drawn if a run requests the given profile.
func (s *System) rankProfileFor(requested string) string {
	for _, part := range s.customParts() {
		if part.RankProfile != "" {
			return part.RankProfile
		}
	}
	return requested
}

// callDraw calls the Draw function of a user's system. A panic in that function is a mistake of the user and is
// returned as an error.
func (s *System) callDraw(d customDraws, p *plan.Plan) (err error) {
	defer recoverAsError(&err, fmt.Sprintf("sim: system %s: Draw", s.Name))
	s.Draw(d, p)
	return nil
}

// drawWithoutRanks draws the delays and the end of faults for a plan without ranks, where [systems.Expand] did not draw
// them.
func drawWithoutRanks(p *plan.Plan) {
	at := func(n uint64) draw.Value { return draw.Hash(p.Seed, customLabel, 0, n) }
	p.Delays.Message = at(0).RoundedDuration(100*time.Microsecond, 5*time.Millisecond)
	p.FaultsEnd = at(1).RoundedDuration(500*time.Millisecond, 3*time.Second)
}

// drawCustomRates draws the rates of the faults that have no scheduled instant. Faults that corrupt messages need a
// system that can recognize its messages (IsWellFormed).
func drawCustomRates(p *plan.Plan, s *System) {
	rates := p.DrawRates("")
	canCorrupt := slices.ContainsFunc(s.parts(), func(part *System) bool { return part.IsWellFormed != nil })
	for _, f := range customRates {
		if rates[f] > 0 && (canCorrupt || f != plan.FaultRequestCorrupted && f != plan.FaultReplyCorrupted) {
			p.Rates[f] = rates[f]
		}
	}
}

// The faults of processes and networks, which are independent of what the processes run. The first list has rates, the
// second has scheduled instants.
//
//kvferry:table
var (
	customRates = []plan.Fault{plan.FaultRequestLost, plan.FaultReplyLost, plan.FaultLossUnnoticed, plan.FaultEffectRefused,
		plan.FaultMessageDelayed, plan.FaultPostDoubled, plan.FaultRequestCorrupted, plan.FaultReplyCorrupted}
	customScheduled = []plan.Fault{plan.FaultCrash, plan.FaultPause, plan.FaultCutConn, plan.FaultNoise, plan.FaultDoubleCrash,
		plan.FaultFreeze, plan.FaultSlowNode, plan.FaultPartition, plan.FaultOneWayPartition, plan.FaultFlappingPartition, plan.FaultConnsReset}
)

// drawDrifts draws the clock drift of users' nodes. Beside ranks the drift stays within the range of the ranks' clocks.
func drawDrifts(p *plan.Plan, nodes *nodeSet) {
	for len(p.Topology.DriftPPM) < nodes.rankCount {
		p.Topology.DriftPPM = append(p.Topology.DriftPPM, 0)
	}
	least, most := slices.Min(append(p.Topology.DriftPPM, 0)), slices.Max(append(p.Topology.DriftPPM, 0))
	if nodes.rankCount == 0 {
		p.Topology.DriftPPM = nil
	}
	for i := range nodes.customs {
		node := &nodes.customs[i]
		if nodes.rankCount == 0 {
			most = cmp.Or(node.system.DriftMaxPPM, 200)
			least = -most
		}
		d := draw.Hash(p.Seed, customLabel, draw.Mix(hashName(node.system.Name), hashName(node.Name)), 0)
		p.Topology.DriftPPM = append(p.Topology.DriftPPM, d.Between(least, most))
	}
}

// customFaultPermille is the probability, in permille, that a kind of fault occurs at the nodes of a user's system. The
// probability is high because these nodes have fewer kinds of faults than ranks have.
const customFaultPermille = 500

// drawsFor returns the draws of a system in a plan.
func drawsFor(p *plan.Plan, s *System, nodes *nodeSet) customDraws {
	d := customDraws{seed: p.Seed, name: hashName(s.Name), faultsEnd: p.FaultsEnd}
	var count int
	d.firstNode, count = nodes.rangeOf(s.Name)
	for i := range count {
		d.nodeNames = append(d.nodeNames, nodes.customs[d.firstNode-nodes.rankCount+i].Name)
	}
	return d
}

// drawCustomFaults draws the scheduled faults of the nodes of a system.
func drawCustomFaults(p *plan.Plan, d customDraws, nodes *nodeSet) {
	var struck, listeners []int
	for i := range d.nodeNames {
		x := &nodes.customs[d.firstNode-nodes.rankCount+i]
		if !x.Spared {
			struck = append(struck, d.firstNode+i)
		}
		if len(x.Channels) > 0 {
			listeners = append(listeners, d.firstNode+i)
		}
	}
	for _, f := range customScheduled {
		least, most := f.IntensityRange()
		chance := d.drawAt("fault "+f.String(), 0)
		if !chance.ChancePermille(customFaultPermille) || f == plan.FaultNoise && len(listeners) == 0 || len(struck) == 0 {
			continue
		}
		for i := range chance.Rehash().Between(least, most) {
			at := func(k uint64) draw.Value { return d.drawAt("fault "+f.String(), 1+8*uint64(i)+k) }
			x := plan.ScheduledFault{Fault: f, At: at(0).RoundedDuration(0, p.FaultsEnd),
				Node: plan.Node(struck[at(1).Below(uint64(len(struck)))])}
			switch f {
			case plan.FaultCrash:
				drawCustomMoment(&x, at)
			case plan.FaultNoise:
				x.Node, x.Pick = plan.Node(listeners[at(1).Below(uint64(len(listeners)))]), at(2).Below(100_000)
			default:
				p.DrawDetails(&x, at)
			}
			p.Faults = append(p.Faults, x)
		}
	}
}

// drawCustomMoment draws the moment of a crash. Half of the crashes happen in the middle of a step that sends or
// reports something.
func drawCustomMoment(x *plan.ScheduledFault, at func(uint64) draw.Value) {
	if at(2).ChancePermille(500) {
		kinds := [...]effects.Kind{plan.AnyEffect, effects.KindOpen, effects.KindSend, effects.KindReply,
			effects.KindDeliver, effects.KindObserve}
		m := plan.Moment{IsSet: true, After: at(3).ChancePermille(500), Effect: kinds[at(4).Below(uint64(len(kinds)))]}
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
	nodes, err := s.newNodeSet(&p)
	if err != nil {
		return p, err
	}
	if s.hasRanks() {
		p = p.WithFaults(seed)
	} else {
		p.Seed, p.Rates, p.Strikes, p.Spared, p.Faults = seed, map[plan.Fault]int{}, nil, nil, nil
		drawCustomRates(&p, s)
	}
	for _, part := range s.customParts() {
		drawCustomFaults(&p, drawsFor(&p, part, &nodes), &nodes)
	}
	slices.SortStableFunc(p.Faults, func(a, b plan.ScheduledFault) int { return cmp.Compare(a.At, b.At) })
	return p, nil
}
