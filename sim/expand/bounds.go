package expand

import (
	"time"

	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
)

// The default values of some limits are out of reach in a simulated run: a run is shorter than the expiry of remembered
// states and the pauses, and a small world does not fill the windows or the largest message. The drawn values are far
// below the length of a run, or are just reached in one seed. Each value has a separate label, so that the remaining
// choices of a seed do not depend on the value.

// drawBounds draws these limits.
func drawBounds(p *plan.Plan, profile string) {
	at := func(n uint64) draw.Value { return draw.Hash(p.Seed, draw.Plan, 6, n) }
	t, b := &p.Timeouts, &p.Bounds
	const ms = time.Millisecond
	if at(0).ChancePermille(400) {
		t.RequestTTL = at(0).Rehash().RoundedDuration(300*ms, 6*time.Second)
	}
	if at(1).ChancePermille(400) {
		t.AbandonTTL = at(1).Rehash().RoundedDuration(20*ms, 2*time.Second)
	}
	if at(2).ChancePermille(400) {
		t.Unfit = at(2).Rehash().RoundedDuration(t.BackoffMax, 3*time.Second)
	}
	if at(3).ChancePermille(150) {
		drawBatchLimit(p)
	}
	if at(4).ChancePermille(300) {
		b.Claims = max(1, p.Topology.ReceiverPages*uint32(at(4).Rehash().Between(1, 24))/8)
	}
	if at(6).ChancePermille(300) {
		b.Rows = uint32(at(6).Rehash().Between(1, 3))
		drawShortDrains(p, at)
	}
	if at(8).ChancePermille(350) { // A page of a full chunk has 32 bytes.
		b.Carries = [...]uint32{32, 64, 96, 1 << 16}[at(8).Rehash().Below(4)]
	}
	// A waiting request takes a few hundred bytes, and a different number in each form of a message.
	if profile != "foreign" && at(9).ChancePermille(200) {
		b.WaitingBytes = uint32(at(9).Rehash().Between(100, 4000))
	}
	if profile != "calm" && at(5).ChancePermille(250) {
		for i := range p.NodeCount() {
			p.Topology.Windows = append(p.Topology.Windows, [...]uint32{1, 2, 16}[at(uint64(100+i)).Below(3)])
		}
	}
}

// drawShortDrains makes some drains time out before their sweeps could end.
func drawShortDrains(p *plan.Plan, at func(uint64) draw.Value) {
	for i := range p.Faults {
		if f := &p.Faults[i]; f.Fault == plan.FaultDrain && at(uint64(200+i)).ChancePermille(400) {
			f.For = at(uint64(200+i)).Rehash().RoundedDuration(0, 3*time.Millisecond)
		}
	}
}

// drawBatchLimit sets the batch limit so that the longest call, and its put if the pools have room, lists exactly as
// many chunks as one message may.
func drawBatchLimit(p *plan.Plan) {
	longest := -1
	for i := range p.Jobs {
		if j := &p.Jobs[i]; longest < 0 || len(j.Keys) > len(p.Jobs[longest].Keys) {
			longest = i
		}
	}
	if longest < 0 {
		return
	}
	j := &p.Jobs[longest]
	n := len(j.Keys)
	p.Bounds.Batch = uint32(n)
	if n <= int(min(p.Topology.SenderPages, p.Topology.ReceiverPages)) && !j.Gather {
		j.Batch = n
	}
}
