package expand

import (
	"slices"

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

// SumsBase returns the profile in which the plan of a seed is drawn before checksums are.
func SumsBase(seed uint64) string {
	return sumsBases[draw.Hash(seed, draw.Plan, 45, 0).Below(uint64(len(sumsBases)))]
}

// AddSums makes engines state checksums, and draws the rates of the faults that checksums find.
func AddSums(p *plan.Plan) {
	p.Profile = SumsProfile
	p.Topology.Sums, p.Topology.Leased = true, false
	// A chunk that its owner writes to the requester comes without a checksum.
	ownersWrite := slices.ContainsFunc(p.Jobs, func(j plan.Job) bool { return j.Flags["push"] })
	for i, f := range []plan.Fault{plan.FaultBitFlippedStored, plan.FaultBitFlippedRead, plan.FaultMemoryFlipped} {
		d := draw.Hash(p.Seed, draw.Plan, 45, uint64(i)+1)
		if ownersWrite && f != plan.FaultBitFlippedRead {
			continue
		}
		if least, most := f.IntensityRange(); d.ChancePermille(500) {
			p.Rates[f] = d.Rehash().Between(least, most)
		}
	}
}
