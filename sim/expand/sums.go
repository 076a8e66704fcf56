package expand

import (
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
)

// SumsProfile is the profile in which engines state checksums of their chunks. Its plans are those of other profiles,
// over planes and memories that change bits.
const SumsProfile = "sums"

// sumsBases lists the profiles in which the plans are drawn.
//
//kvferry:table
var sumsBases = []string{
	"swarm", "fenced", "pull", "delayed", "full", "both", "cache", "recall", "p2p", "p2p", "layerwise",
	"crash", "agent",
}

// leasedSumsBases lists the same for plans with leased planes, where machines have pages compared.
//
//kvferry:table
var leasedSumsBases = []string{
	"leased", "hccl", "swarm", "pull", "delayed", "full", "both", "cache", "recall", "p2p", "p2p", "layerwise", "crash", "agent",
}

// hasLeasedSums reports whether the plan of a seed has leased planes.
func hasLeasedSums(seed uint64) bool { return draw.Hash(seed, draw.Plan, 45, 4).ChancePermille(400) }

// SumsBase returns the profile in which the plan of a seed is drawn before checksums are.
func SumsBase(seed uint64) string {
	if hasLeasedSums(seed) {
		return leasedSumsBases[draw.Hash(seed, draw.Plan, 45, 5).Below(uint64(len(leasedSumsBases)))]
	}
	return sumsBases[draw.Hash(seed, draw.Plan, 45, 0).Below(uint64(len(sumsBases)))]
}

// AddSums makes engines state checksums, and draws the rates of the faults that checksums find.
func AddSums(p *plan.Plan) {
	p.Profile = SumsProfile
	p.Topology.Sums, p.Topology.Leased = true, hasLeasedSums(p.Seed)
	for i, f := range []plan.Fault{plan.FaultBitFlippedStored, plan.FaultBitFlippedRead, plan.FaultMemoryFlipped} {
		d := draw.Hash(p.Seed, draw.Plan, 45, uint64(i)+1)
		if least, most := f.IntensityRange(); d.ChancePermille(500) {
			p.Rates[f] = d.Rehash().Between(least, most)
		}
	}
}
