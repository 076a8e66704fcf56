package simtest

import (
	"time"

	"pgregory.net/rapid"

	"github.com/kvferry/kvferry/sim"
)

// Plans returns a rapid generator of small plans. Rapid reduces a failing plan by drawing less: fewer nodes, jobs,
// chunks and faults, and earlier instants.
func Plans() *rapid.Generator[sim.Plan] { return rapid.Custom(drawPlan) }

func drawPlan(t *rapid.T) sim.Plan {
	p := sim.NewPlan()
	p.Seed = rapid.Uint64Range(0, 1<<20).Draw(t, "seed")
	o := &p.Topology
	o.Senders = rapid.IntRange(1, 3).Draw(t, "senders")
	o.Receivers = rapid.IntRange(1, 2).Draw(t, "receivers")
	// If only one node would be left, there would be no node to send to.
	o.Both = rapid.IntRange(0, min(o.Senders, o.Receivers, o.Senders+o.Receivers-2)).Draw(t, "of both sides")
	o.SenderPages = rapid.Uint32Range(4, 16).Draw(t, "sender pages")
	o.ReceiverPages = rapid.Uint32Range(4, 16).Draw(t, "receiver pages")
	o.Leased = rapid.Bool().Draw(t, "leased")
	jobs := rapid.IntRange(0, 8).Draw(t, "jobs")
	for i := range jobs {
		p.Jobs = append(p.Jobs, drawJob(t, o, uint32(i)))
	}
	faults := rapid.IntRange(0, 4).Draw(t, "faults")
	for range faults {
		p.Faults = append(p.Faults, drawFault(t, o))
	}
	p.Rates = map[sim.Fault]int{}
	for _, f := range sim.Faults() {
		if !f.IsScheduled() && rapid.IntRange(0, 3).Draw(t, "is there "+f.String()) == 3 {
			p.Rates[f] = rapid.IntRange(0, 400).Draw(t, f.String())
		}
	}
	return p
}

func drawJob(t *rapid.T, o *sim.Topology, request uint32) sim.Job {
	j := sim.Job{Request: request, At: drawInstant(t)}
	j.From = sim.Node(rapid.IntRange(0, o.Senders-1).Draw(t, "from"))
	first, receiver := o.Senders-o.Both, rapid.IntRange(0, o.Receivers-1).Draw(t, "to")
	if j.To = sim.Node(first + receiver); j.To == j.From { // A node does not send to itself.
		j.To = sim.Node(first + (receiver+1)%o.Receivers)
	}
	if j.To == j.From { // The only receiver was drawn as the sender.
		j.From = 0
	}
	shared := rapid.SliceOfNDistinct(rapid.Uint32Range(1, 12), 0, 4, rapid.ID[uint32]).Draw(t, "shared keys")
	unshared := rapid.Uint32Range(0, 4).Draw(t, "keys of its own")
	j.Keys = shared
	for k := range unshared {
		j.Keys = append(j.Keys, sim.FirstUnsharedKey+8*request+k)
	}
	if len(j.Keys) == 0 {
		j.Keys = []uint32{sim.FirstUnsharedKey + 8*request}
	}
	j.Batch = rapid.IntRange(1, 4).Draw(t, "batch")
	j.Early = rapid.Bool().Draw(t, "early")
	return j
}

func drawFault(t *rapid.T, o *sim.Topology) sim.ScheduledFault {
	var scheduled []sim.Fault
	for _, f := range sim.Faults() {
		if f.IsScheduled() {
			scheduled = append(scheduled, f)
		}
	}
	x := sim.ScheduledFault{Fault: rapid.SampledFrom(scheduled).Draw(t, "fault"), At: drawInstant(t)}
	x.Node = sim.Node(rapid.IntRange(0, o.Senders+o.Receivers-o.Both-1).Draw(t, "node"))
	x.Pick = rapid.Uint64Range(0, 99).Draw(t, "pick")
	switch x.Fault {
	case sim.FaultCrash, sim.FaultRankAlone:
		x.When = rapid.SampledFrom([]string{"", "before Transfer", "after Transfer", "before Grant", "after Grant",
			"before Reply", "after Reply"}).Draw(t, "when")
	case sim.FaultNoise: // Only receivers listen.
		x.Node = sim.Node(o.Senders - o.Both)
	default:
		x.For = rapid.SampledFrom([]time.Duration{10 * time.Millisecond, 100 * time.Millisecond, time.Second}).Draw(t, "for")
	}
	return x
}

func drawInstant(t *rapid.T) time.Duration {
	return time.Duration(rapid.IntRange(0, 150).Draw(t, "at, in hundredths of a second")) * 10 * time.Millisecond
}
