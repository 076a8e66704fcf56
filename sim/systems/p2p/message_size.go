package p2p

import (
	"slices"

	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
)

// In some seeds messages are so short that a Bring of many chunks does not fit into one.

// longBringKeys is the number of chunks of the Brings that do not fit.
const longBringKeys = 18

// hasShortMessages reports whether the messages of a seed are short.
func hasShortMessages(p *plan.Plan) bool {
	return !draw.IsFixed(p.Seed) && draw.Hash(p.Seed, draw.Plan, 9, 60).ChancePermille(200)
}

// limitMessages limits messages to what the largest put of the run may take, if messages are short.
func limitMessages(p *plan.Plan, c *rank.Config) {
	if !hasShortMessages(p) {
		return
	}
	chunks := 4
	for i := range p.Jobs {
		if j := &p.Jobs[i]; !j.Flags[flowWord] {
			chunks = max(chunks, len(j.Keys))
		}
	}
	const headBytes, chunkBytes = 1030, 60 // upper bounds, as ranks count them
	c.Wire = pd.WireLimits
	c.Wire.MessageBytes = headBytes + chunkBytes*chunks
	c.Carries = min(c.Carries, uint32(c.Wire.MessageBytes/2))
}

// lengthenPush adds chunks to a job that no node has. In push mode the receiver grants pages for them all the same, and
// its request names the pages.
func lengthenPush(p *plan.Plan, j *plan.Job) {
	j.Keys = slices.Clone(j.Keys)
	for k := uint32(len(j.Keys)); k < longBringKeys; k++ {
		j.Keys = append(j.Keys, plan.FirstUnsharedKey+1<<13+j.Request<<5+k)
	}
	j.Batch = len(j.Keys)
}
