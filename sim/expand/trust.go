package expand

import (
	"slices"
	"time"

	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
)

// TrustProfile is the profile in which processes prove identities. Its plans are those of other profiles, with
// identities, and with strangers that have identities, too.
const TrustProfile = "trust"

// trustBases lists the profiles in which the plans are drawn.
//
//kvferry:table
var trustBases = []string{
	"swarm", "fenced", "leased", "pull", "pull", "delayed", "full", "both", "cache", "recall", "p2p", "p2p", "register", "layerwise",
	"crash",
}

// TrustBase returns the profile in which the plan of a seed is drawn before identities are.
func TrustBase(seed uint64) string {
	return trustBases[draw.Hash(seed, draw.Plan, 40, 0).Below(uint64(len(trustBases)))]
}

// AddTrust draws the identities of the nodes, and strangers that send messages for which they have no right.
func AddTrust(p *plan.Plan) {
	at := func(n uint64) draw.Value { return draw.Hash(p.Seed, draw.Plan, 40, n) }
	p.Profile = TrustProfile
	t := &p.Topology
	way := at(1).Below(4)
	for i := range p.NodeCount() {
		identity := uint32(i) + 1 // Each node has an identity of its own.
		switch way {
		case 1: // The nodes of a role have one identity.
			identity = 1
			if p.IsReceiver(plan.Node(i)) {
				identity = 2
			}
		case 2: // Some nodes have one identity.
			identity = 1 + uint32(at(20+uint64(i)).Below(uint64(p.NodeCount())))
		}
		t.Identities = append(t.Identities, identity)
	}
	if t.Strict = at(2).ChancePermille(500); t.Strict {
		for i := range p.Jobs { // No plain peer is let in.
			p.Jobs[i].Plain, p.Jobs[i].PlainTo = false, false
		}
	}
	addOrigins(p, at)
	if at(7).ChancePermille(crowdedPermille) {
		addCrowds(p, at)
	} else {
		// The first hello under a name decides whose name it is, so names must not be forgotten.
		p.Bounds.Peers = max(p.Bounds.Peers, uint32(at(6).Between(12, 24)))
		addStrangers(p, plan.FaultHostileMessage, at(3).Between(4, 40))
		addStrangers(p, plan.FaultGreedyPeer, at(4).Between(0, 2))
		if len(t.Pull) > 0 {
			addStrangers(p, plan.FaultDoneForged, at(5).Between(0, 12))
		}
	}
	slices.SortStableFunc(p.Faults, func(a, b plan.ScheduledFault) int { return int(a.At - b.At) })
}

// crowdedPermille is the part of the plans in which hosts take what they can under many names.
const crowdedPermille = 400

// addOrigins draws which nodes count against the same host or identity.
func addOrigins(p *plan.Plan, at func(uint64) draw.Value) {
	way := at(8).Below(4)
	p.Topology.Origins = nil // The profile in which the plan is drawn may have drawn some.
	for i := range p.NodeCount() {
		origin := uint32(i) + 1 // Each node is on a host of its own.
		switch way {
		case 1: // All are on one host.
			origin = 1
		case 2, 3: // Some are on one host.
			origin = 1 + uint32(at(100+uint64(i)).Below(uint64(p.NodeCount())))
		}
		p.Topology.Origins = append(p.Topology.Origins, origin)
	}
	p.Bounds.OriginSharePct = uint32(at(9).Between(int(p.Bounds.PeerSharePct), 100))
}

// addCrowds draws few rows for peers, small shares, and strangers that say hello and request pages under many names.
// Strangers do not know the secret names of nodes in these plans, because a receiver forgets to whom a name belongs.
func addCrowds(p *plan.Plan, at func(uint64) draw.Value) {
	p.Faults = slices.DeleteFunc(p.Faults, func(f plan.ScheduledFault) bool {
		return f.Fault == plan.FaultHostileMessage || f.Fault == plan.FaultDoneForged
	})
	p.Bounds.Peers = uint32(max(at(10).Between(2, 14), p.NodeCount()+at(11).Between(-1, 2)))
	p.Bounds.PeerSharePct = uint32(at(12).Between(55, 80))
	if p.Bounds.OriginSharePct = p.Bounds.PeerSharePct; at(19).ChancePermille(500) {
		p.Bounds.OriginSharePct = uint32(at(13).Between(int(p.Bounds.PeerSharePct), 90))
	}
	if at(17).ChancePermille(700) { // Peers that have used their names keep no row for long.
		p.Tuning.ProvenPeerBonus = at(18).RoundedDuration(time.Millisecond, time.Second)
	}
	addStrangers(p, plan.FaultHelloCrowd, at(14).Between(1, 6))
	addStrangers(p, plan.FaultGreedyPeer, at(15).Between(0, 6))
	addStrangers(p, plan.FaultCrash, at(16).Between(0, 3)) // The next incarnation has another name.
}

// addStrangers adds occurrences of a fault, most of which strangers cause.
func addStrangers(p *plan.Plan, f plan.Fault, count int) {
	for i := range count {
		at := func(n uint64) draw.Value { return draw.Hash(p.Seed, draw.Plan, 41+uint64(f), uint64(i)<<8|n) }
		p.Faults = append(p.Faults, plan.ScheduledFault{Fault: f, At: at(0).RoundedDuration(0, p.FaultsEnd),
			Node: plan.Node(at(1).Below(uint64(p.NodeCount())))})
		x := &p.Faults[len(p.Faults)-1]
		if p.DrawDetails(x, at); f == plan.FaultHelloCrowd {
			x.Node, x.Pick = p.ReceiverAt(int(x.Node)%p.Topology.Receivers), at(2).Below(100_000)
		}
	}
}
