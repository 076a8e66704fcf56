package sim

import (
	"testing"
	"time"

	"github.com/kvferry/kvferry/sim/plan"
)

// manyPerRole is half of the number of nodes of a large plan.
const manyPerRole = 32

// manyNodesPlan returns a plan of 64 nodes, in which half of the senders offer their chunks to be read.
func manyNodesPlan() plan.Plan {
	p := plan.New()
	p.Topology.Senders, p.Topology.Receivers = manyPerRole, manyPerRole
	for i := range uint32(2 * manyPerRole) {
		p.Jobs = append(p.Jobs, plan.Job{At: time.Duration(i) * time.Millisecond, Request: i,
			From: plan.Node(i % manyPerRole), To: plan.Node(manyPerRole + 7*i%manyPerRole), Keys: []uint32{3 * i, 3*i + 1, 3*i + 2},
			Batch: 2})
	}
	for n := range plan.Node(manyPerRole / 2) {
		p.Topology.Pull = append(p.Topology.Pull, 2*n)
	}
	return p
}

// TestManyNodes: the plan runs, and at the end a transfer from each sender to each receiver succeeds.
func TestManyNodes(t *testing.T) {
	p := manyNodesPlan()
	r := mustRun(t, Options{Plan: &p})
	if r.Failure != nil {
		t.Fatal(r.Failure)
	}
	if want := uint64(len(p.Jobs)*3 + manyPerRole*manyPerRole); r.Chunks < want {
		t.Errorf("%d chunks arrived, want %d, with one of each probe", r.Chunks, want)
	}
}

// manyFaultsPlan returns the plan of 64 nodes with many faults.
func manyFaultsPlan() plan.Plan {
	p := manyNodesPlan()
	p.Rates = map[plan.Fault]int{plan.FaultRequestLost: 20, plan.FaultReplyLost: 20, plan.FaultDMAFailed: 20,
		plan.FaultReplyCorrupted: 20, plan.FaultMessageDelayed: 50}
	for i := range 8 {
		p.Faults = append(p.Faults, plan.ScheduledFault{At: time.Duration(10+5*i) * time.Millisecond, Fault: plan.FaultCrash,
			Node: plan.Node(4 + 8*i), For: 100 * time.Millisecond})
	}
	return p
}

// TestManyNodesInTrouble: the plan also runs with many faults, and the recorded plan is the same run.
func TestManyNodesInTrouble(t *testing.T) {
	p := manyFaultsPlan()
	r := mustRun(t, Options{Plan: &p, RecordStrikes: true})
	if r.Failure != nil {
		t.Fatal(r.Failure)
	}
	if crashes := r.FaultCounts[plan.FaultCrash]; len(r.Strikes) == 0 || crashes != 8 {
		t.Errorf("%d strikes and %d crashes: want some, and 8", len(r.Strikes), crashes)
	}
	recorded := p.WithStrikes(r.Strikes)
	text, err := recorded.Text()
	if err != nil {
		t.Fatal(err)
	}
	back, err := plan.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if again := mustRun(t, Options{Plan: &back}); again.Hash != r.Hash {
		t.Errorf("the recorded plan has hash %x, it was %x", again.Hash, r.Hash)
	}
}
