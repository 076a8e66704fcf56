package pd

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// The behaviour of prefill and decode in the phases of a run.

// Patience returns a time that is longer than any sequence of deadlines in the plan takes.
func (w *Cluster) Patience() effects.Duration {
	c := &w.Plan.Rank
	pulls := effects.Duration(0)
	if len(w.Source.Topology.Pull) > 0 {
		pulls = 2*c.PullTTL + 2*c.ReadTimeout + 2*c.FetchTimeout + c.ReadLeaseMax
	}
	all := 2*c.PutTimeout + 3*c.ReserveTimeout + c.GetWaitMax + 2*c.Lease + pulls + 2*c.ReplyTimeout + c.Residual
	return 12*all/10 + w.Setting.Faulty + 6*effects.Second
}

// Overdue fails the run if a command should have ended, or should have returned its memory, by now.
func (w *Cluster) Overdue() {
	for i := range w.Commands {
		c := &w.Commands[i]
		switch {
		case !c.Over && c.Due != 0 && c.Due < w.Now:
			w.Fail("L1", "node %d never delivers ticket %d (%s)", oracle.Node(c.Node), oracle.Ticket(i+1), c.Want)
			return
		case c.Held && c.Due+int64(w.Patience()) < w.Now:
			w.Fail("L1", "node %d never returns the memory of ticket %d", oracle.Node(c.Node), oracle.Ticket(i+1))
			return
		}
	}
}

// Probe checks that after all faults have ended a transfer from every sender to every receiver succeeds (L5).
func (w *Cluster) Probe() {
	if w.Flows.Alone() != nil {
		probeAlone(w)
		return
	}
	probes := uint32(0)
	for s := range w.Plan.Senders {
		for i := range w.Plan.Receivers {
			r := int(w.Source.Receiver(i))
			if w.Plan.Mismatch && (s == 0 || r == 0) || s == r {
				// The mismatched node cannot succeed because of its configuration, and no node sends to itself.
				continue
			}
			ok := false
			for try := 0; try < probeTries && !ok && w.Failure == nil; try++ {
				i := len(w.Jobs)
				j := w.NewJob(w.Plan.requests+probes, int32(s), int32(r))
				j.probe = true
				j.goesTo(w)
				j.addKey(w, w.Plan.keys+probes)
				probes++
				j.cut(1)
				j.start(w)
				served := func() bool { return w.Jobs[i].served && w.Unfinished == 0 }
				w.RunUntil(w.Now+int64(w.Patience()), served)
				ok = w.Jobs[i].served
				if !ok {
					w.RunUntil(w.Now+int64(forgotten), nil)
				}
			}
			if !ok && w.Failure == nil && !w.sluggish(w.Nodes[s], w.Nodes[r]) {
				w.Fail("L5", "after all faults ended, nothing gets from node %d to node %d, at last not request %s",
					oracle.Node(s), oracle.Node(r), oracle.Request(w.Jobs[len(w.Jobs)-1].Name))
			}
			if ok && w.Failure == nil {
				probeEnd(w, len(w.Jobs)-1)
			}
		}
	}
}

// probeEnd checks that a receiver is notified again of how requests ended, in worlds in which engines send that
// message.
func probeEnd(w *Cluster, job int) {
	if !slices.ContainsFunc(w.Source.Jobs, func(j plan.Job) bool { return j.Said[Tells] }) {
		return
	}
	for range probeTries {
		n := w.Nodes[w.Jobs[job].Sender]
		t := w.Give(n, w.Jobs[job].End(w, effects.OK, nil), Its(n).Cfg.PutTimeout)
		w.RunUntil(w.Now+int64(w.Patience()), func() bool { return w.Commands[t-1].Over && w.Unfinished == 0 })
		if c := &w.Commands[t-1]; w.Failure != nil || c.Over && (c.Code == effects.OK || c.Code == effects.NotSent) {
			return
		}
		// The sender's lane may wait for a lost reply longer than the deadline of an end command.
		w.RunUntil(w.Now+int64(Its(n).Cfg.ReplyTimeout), nil)
	}
	w.Fail("L9", "after all faults ended, node %d is never told how requests of node %d ended",
		oracle.Node(w.Jobs[job].Receiver), oracle.Node(w.Jobs[job].Sender))
}

// probeAlone does what Probe does in worlds in which every job concerns all nodes.
func probeAlone(w *Cluster) {
	for try := range uint32(probeTries) {
		i := len(w.Jobs)
		j := w.NewJob(w.Plan.requests+try, 0, 1)
		j.probe = true
		j.addKey(w, w.Plan.keys+try)
		j.cut(1)
		j.start(w)
		w.RunUntil(w.Now+int64(w.Patience()), func() bool { return w.Jobs[i].served && w.Unfinished == 0 })
		if w.Failure != nil || w.Jobs[i].served {
			return
		}
		w.RunUntil(w.Now+int64(forgotten), nil)
	}
	for i := range w.Ranks {
		if w.sluggish(w.Nodes[i], w.Nodes[(i+1)%w.Ranks]) {
			return
		}
	}
	w.Fail("L5", "after all faults ended, no request gets to node %d, at last not %s", oracle.Node(0),
		oracle.Request(w.Jobs[len(w.Jobs)-1].Name))
}

// Serve records whether the job's reader has received all of the job.
func (j *Job) Serve(all bool) { j.served = all }

// goesTo makes a probe go layer by layer where a put of a single page is useless. The probe is then for a receiver that
// stores several pages of the sender in a single page.
func (j *Job) goesTo(w *Cluster) {
	for _, f := range w.Flows {
		if f.Layers == nil || Its(w.Nodes[j.Sender]).Cfg.Layers == 0 {
			continue
		}
		if j.Together = f.Layers.Together(w.Source, plan.Node(j.Receiver)); j.Together > 0 {
			j.Said = plan.Said{f.Word: true}
		}
	}
}

// Probes reports whether the job was created after healing. Such a job must succeed.
func (j *Job) Probes() bool { return j.probe }

// sluggish reports whether the delays of the world are too long for the configured timeouts: a fetch of a single chunk
// can take as long as the fetch timeout, an offer is valid only as long as a few messages take, or the reply to an
// offer takes as long as the reply timeout (over a communicator the reply waits for several operations of the device).
// Each transfer may then end as expired, and no rule promises success within a few attempts.
func (w *Cluster) sluggish(from, to *world.Node) bool {
	c := &w.Plan.Rank
	useful := c.PullTTL - c.LeaseGuard // how long a reader may read or keep an offer
	if to.Delays {
		useful -= c.LeadMin
	}
	return from.Pulls && (to.Delays && c.FetchTimeout < 6*(w.Setting.Device+w.Setting.Scatter) ||
		w.Source.Topology.Communicators && c.ReplyTimeout < 8*w.Setting.Device ||
		useful < 12*effects.Duration(w.Source.Delays.Message))
}

// probeTries is the number of attempts of a probe. Each attempt can fail on a connection that broke while idle, which
// no peer can notice earlier.
const probeTries = 6

// probesMax returns the largest possible number of probes.
func (s *Setting) probesMax() int { return s.Senders * s.Receivers * probeTries }

// forgotten is longer than a sender keeps a request after the request's last batch failed to arrive. Until then, a full
// table of such requests refuses new requests.
const forgotten = 70 * effects.Second
