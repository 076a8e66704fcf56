package expand

import (
	"time"

	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
)

// drawCommunicators draws a leased plane as between NPUs. On this plane no node serves peers without leases.
func drawCommunicators(p *plan.Plan) {
	at := func(n uint64) draw.Value { return draw.Hash(p.Seed, draw.Plan, 5, n) }
	p.Topology.Leased, p.Topology.Communicators, p.Topology.Trust = true, true, false
	if at(0).ChancePermille(500) {
		drawPullSenders(p, "hccl")
	}
	if at(1).ChancePermille(500) { // A lease may end in the middle of a batch.
		p.Delays.Device = at(1).Rehash().RoundedDuration(2*time.Millisecond, 20*time.Millisecond)
	}
	if at(2).ChancePermille(500) { // Grants time out and are revoked.
		p.Timeouts.Put = at(2).Rehash().RoundedDuration(100*time.Millisecond, time.Second)
	}
}

// drawEpochFaults draws three kinds of plans with communicators that are otherwise rare: small transfers, several of which
// hang together on a link and are aborted one after another; links of a process that are lost one after another while the
// ends of earlier ones are still being destroyed; and epochs of which many cannot be formed, but not as many in a row as
// end the link.
func drawEpochFaults(s *Scale, rates *[plan.FaultCount]int, at func(uint64) draw.Value) {
	if at(120).ChancePermille(300) {
		s.BatchMax = min(s.BatchMax, 2)
		rates[plan.FaultLateStore] = max(rates[plan.FaultLateStore], 150)
		rates[plan.FaultCommandAborted] = max(rates[plan.FaultCommandAborted], 250)
	}
	if at(121).ChancePermille(300) {
		rates[plan.FaultRevokeDelayed] = max(rates[plan.FaultRevokeDelayed], 400)
		rates[plan.FaultCommStays] = max(rates[plan.FaultCommStays], 200)
		rates[plan.FaultCutLink] = at(122).Between(4, 10)
	}
	if at(123).ChancePermille(200) {
		rates[plan.FaultImportFailed] = at(124).Between(100, 400)
	}
}
