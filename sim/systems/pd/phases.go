package pd

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// The behaviour of prefill and decode in the phases of a run.

// LongestDeadline returns a time that is longer than any sequence of deadlines in the plan takes.
func (w *Cluster) LongestDeadline() effects.Duration {
	c := &w.Setup.Rank
	pulls := effects.Duration(0)
	if len(w.SourcePlan.Topology.Pull) > 0 {
		pulls = 2*c.PullTTL + 2*c.ReadTimeout + 2*c.FetchTimeout + c.ReadLeaseMax
	}
	commands, leases := max(c.PutTimeout, c.BringTimeout, c.RecallTimeout), max(c.Lease, c.ShareTTL)
	all := 2*commands + 3*c.ReserveTimeout + c.GetWaitMax + 2*leases + pulls + 2*c.ReplyTimeout + c.Residual
	return 12*all/10 + w.Conditions.FaultsEnd + 6*effects.Second
}

var (
	checkOverdue = oracle.NewCheck("L1", "commands that are left when faults have ended")
	checkProbes  = oracle.NewCheck("L5", "transfers after all faults")
)

// FailOverdue fails the run if a command should have ended, or should have returned its memory, by now.
func (w *Cluster) FailOverdue() {
	w.CountJudged(checkOverdue)
	for i := range w.Commands {
		c := &w.Commands[i]
		switch {
		case !c.Finished && c.DueAt != 0 && c.DueAt < w.Now:
			w.FailCheck(checkOverdue, "node %d never delivers ticket %d (%s)", oracle.Node(c.Node), oracle.Ticket(i+1), c.Kind)
			return
		case c.HoldsMemory && c.DueAt+int64(w.LongestDeadline()) < w.Now:
			w.FailCheck(checkOverdue, "node %d never returns the memory of ticket %d", oracle.Node(c.Node), oracle.Ticket(i+1))
			return
		}
	}
}

// ProbeTransfers checks that after all faults have ended a transfer from every sender to every receiver succeeds (L5).
func (w *Cluster) ProbeTransfers() {
	w.CountJudged(checkProbes)
	if w.Flows.ExclusivePart() != nil {
		probeExclusive(w)
		return
	}
	probes := uint32(0)
	for s := range w.Setup.Senders {
		for i := range w.Setup.Receivers {
			r := int(w.SourcePlan.ReceiverAt(i))
			if w.Setup.Mismatch && (s == 0 || r == 0) || s == r {
				// The mismatched node cannot succeed because of its configuration, and no node sends to itself.
				continue
			}
			if !w.mayPut(s, r) { // These two only share chunks.
				continue
			}
			ok := false
			for try := 0; try < probeAttempts && !ok && w.Failure == nil; try++ {
				i := len(w.Jobs)
				j := w.NewJob(w.Setup.nextRequest+probes, int32(s), int32(r))
				j.probe = true
				j.useLayers(w)
				j.addKey(w, w.Setup.nextKey+probes)
				probes++
				j.cutBatches(1)
				j.startWork(w)
				served := func() bool { return w.Jobs[i].served && w.UnfinishedCount == 0 }
				w.RunUntil(w.Now+int64(w.LongestDeadline()), served)
				ok = w.Jobs[i].served
				if !ok { // With drifting clocks a lease may be nearly over just after a silence of one length.
					w.RunUntil(w.Now+int64(requestForgetTime)/int64(1+3*(try%2)), nil)
				}
			}
			if !ok && w.Failure == nil && !w.isTooSlow(w.Nodes[s], w.Nodes[r]) {
				w.FailCheck(checkProbes, "after all faults ended, no transfer from node %d to node %d succeeds, last request %s",
					oracle.Node(s), oracle.Node(r), oracle.Request(w.Jobs[len(w.Jobs)-1].Name))
			}
			if ok && w.Failure == nil {
				probeEndOfRequest(w, len(w.Jobs)-1)
			}
		}
	}
}

// probeEndOfRequest checks that a receiver is notified again of how requests ended, in worlds in which engines send
// that message.
func probeEndOfRequest(w *Cluster, job int) {
	if !slices.ContainsFunc(w.SourcePlan.Jobs, func(j plan.Job) bool { return j.Flags[ReportsEnd] }) {
		return
	}
	for range probeAttempts {
		n := w.Nodes[w.Jobs[job].Sender]
		t := w.GiveCommand(n, w.Jobs[job].EndCommand(w, effects.OK, nil), InfoOf(n).Cfg.PutTimeout)
		w.RunUntil(w.Now+int64(w.LongestDeadline()), func() bool { return w.Commands[t-1].Finished && w.UnfinishedCount == 0 })
		if c := &w.Commands[t-1]; w.Failure != nil || c.Finished && (c.Code == effects.OK || c.Code == effects.NotSent) {
			return
		}
		// The sender's lane may wait for a lost reply longer than the deadline of an end command.
		w.RunUntil(w.Now+int64(InfoOf(n).Cfg.ReplyTimeout), nil)
	}
	w.Fail("L9", "after all faults ended, node %d never gets end-of-request messages of node %d",
		oracle.Node(w.Jobs[job].Receiver), oracle.Node(w.Jobs[job].Sender))
}

// probeExclusive does what ProbeTransfers does in worlds in which every job concerns all nodes.
func probeExclusive(w *Cluster) {
	for try := range uint32(probeAttempts) {
		i := len(w.Jobs)
		j := w.NewJob(w.Setup.nextRequest+try, 0, 1)
		j.probe = true
		j.addKey(w, w.Setup.nextKey+try)
		j.cutBatches(1)
		j.startWork(w)
		w.RunUntil(w.Now+int64(w.LongestDeadline()), func() bool { return w.Jobs[i].served && w.UnfinishedCount == 0 })
		if w.Failure != nil || w.Jobs[i].served {
			return
		}
		w.RunUntil(w.Now+int64(requestForgetTime), nil)
	}
	for i := range w.RankCount {
		if w.isTooSlow(w.Nodes[i], w.Nodes[(i+1)%w.RankCount]) {
			return
		}
	}
	w.FailCheck(checkProbes, "after all faults ended, no request to node %d succeeds, last %s", oracle.Node(0),
		oracle.Request(w.Jobs[len(w.Jobs)-1].Name))
}

// SetServed records whether the job's reader has received all of the job.
func (j *Job) SetServed(all bool) { j.served = all }

// useLayers makes a probe go layer by layer where a put of a single page is useless. The probe is then for a receiver
// that stores several pages of the sender in a single page.
func (j *Job) useLayers(w *Cluster) {
	for _, f := range w.Flows {
		if f.Layers == nil || InfoOf(w.Nodes[j.Sender]).Cfg.Layers == 0 {
			continue
		}
		if j.SenderPagesPerChunk = f.Layers.SenderPagesPerChunk(w.SourcePlan, plan.Node(j.Receiver)); j.SenderPagesPerChunk > 0 {
			j.Flags = plan.FlowFlags{f.Flag: true}
		}
	}
}

// IsProbe reports whether the job was created after healing. Such a job must succeed.
func (j *Job) IsProbe() bool { return j.probe }

// isTooSlow reports whether the delays of the world are too long for the configured timeouts: a fetch of a single chunk
// can take as long as the fetch timeout, an offer is valid only as long as a few messages take, or the reply to an
// offer takes as long as the reply timeout (over a communicator the reply waits for several operations of the device).
// Each transfer may then end as expired, and no rule promises success within a few attempts.
func (w *Cluster) isTooSlow(from, to *world.Node) bool {
	c := &w.Setup.Rank
	readTime := c.PullTTL - c.LeaseGuard // how long a reader may read or keep an offer
	if to.KeepsOffers {
		readTime -= c.LeadMin
	}
	return from.OffersChunks && (to.KeepsOffers && c.FetchTimeout < 6*(w.Conditions.DeviceTime+w.Conditions.ScatterTime) ||
		w.SourcePlan.Topology.Communicators && c.ReplyTimeout < 8*w.Conditions.DeviceTime ||
		readTime < 12*effects.Duration(w.SourcePlan.Delays.Message))
}

// probeAttempts is the number of attempts of a probe. Each attempt can fail on a connection that broke while idle,
// which no peer can notice earlier.
const probeAttempts = 6

// probesMax returns the largest possible number of probes.
func (s *ClusterSetup) probesMax() int { return s.Senders * s.Receivers * probeAttempts }

// requestForgetTime is longer than a sender keeps a request after the request's last batch failed to arrive. Until
// then, a full table of such requests refuses new requests.
const requestForgetTime = 70 * effects.Second
