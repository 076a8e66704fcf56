package expand

import (
	"slices"

	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
)

// DomainsProfile is the profile in which strangers of other trust domains send chunks of their own, and look for those
// of others. Its plans are those of the profile trust, with domains.
const DomainsProfile = "domains"

// domainsBases lists the profiles in which the plans are drawn. Registrations are left out, because they name no keys.
//
//kvferry:table
var domainsBases = []string{
	"swarm", "fenced", "leased", "pull", "delayed", "full", "both", "cache", "cache", "recall", "recall", "p2p", "p2p", "crash",
}

// DomainsBase returns the profile in which the plan of a seed is drawn before identities and domains are.
func DomainsBase(seed uint64) string {
	return domainsBases[draw.Hash(seed, draw.Plan, 47, 0).Below(uint64(len(domainsBases)))]
}

// AddDomains makes the nodes tell trust domains apart, and adds strangers. Most nodes take chunks that come in requests,
// because strangers send chunks in no other way. No node is a plain peer, which would be of another domain than the rest.
func AddDomains(p *plan.Plan) {
	at := func(n uint64) draw.Value { return draw.Hash(p.Seed, draw.Plan, 47, n) }
	p.Profile = DomainsProfile
	p.Topology.Domains = true
	for i := range p.Jobs {
		p.Jobs[i].Plain, p.Jobs[i].PlainTo = false, false
	}
	if at(1).ChancePermille(800) {
		p.Bounds.Carries = [...]uint32{64, 96, 1 << 16}[at(2).Below(3)]
	}
	addStrangers(p, plan.FaultGreedyPeer, at(3).Between(1, 8))
	slices.SortStableFunc(p.Faults, func(a, b plan.ScheduledFault) int { return int(a.At - b.At) })
}
