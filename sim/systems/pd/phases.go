package pd

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// What the phases of a run mean to prefill and decode.

// patience is longer than any deadline of the plan takes.
func (w *Cluster) patience() effects.Duration {
	c := &w.Plan.Rank
	pulls := effects.Duration(0)
	if len(w.Source.Topology.Pull) > 0 {
		pulls = 2*c.PullTTL + 2*c.ReadTimeout + 2*c.FetchTimeout + c.ReadLeaseMax
	}
	all := 2*c.PutTimeout + 3*c.ReserveTimeout + c.GetWaitMax + 2*c.Lease + pulls + 2*c.ReplyTimeout + c.Residual
	return 12*all/10 + w.Setting.Faulty + 6*effects.Second
}

// overdue finds a command that should have ended, or given its memory back, by now.
func (w *Cluster) overdue() {
	for i := range w.Commands {
		c := &w.Commands[i]
		switch {
		case !c.Over && c.Due != 0 && c.Due < w.Now:
			w.Fail("L1", "node %d never delivers ticket %d (%s)", oracle.Node(c.Node), oracle.Ticket(i+1), c.Want)
			return
		case c.Held && c.Due+int64(w.patience()) < w.Now:
			w.Fail("L1", "node %d never returns the memory of ticket %d", oracle.Node(c.Node), oracle.Ticket(i+1))
			return
		}
	}
}

// probe: from every sender to every receiver a transfer succeeds again (L5).
func (w *Cluster) Probe() {
	if w.Flows.alone() != nil {
		probeAlone(w)
		return
	}
	probes := uint32(0)
	for s := range w.Plan.Senders {
		for i := range w.Plan.Receivers {
			r := int(w.Source.Receiver(i))
			if w.Plan.Mismatch && (s == 0 || r == 0) || s == r {
				continue // Its configuration is what is wrong; and nobody sends to himself.
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
				w.RunUntil(w.Now+int64(w.patience()), served)
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

// probeEnd checks, in worlds in which engines say how requests ended, that the word gets to a receiver again.
func probeEnd(w *Cluster, job int) {
	if !slices.ContainsFunc(w.Source.Jobs, func(j plan.Job) bool { return j.Said[Tells] }) {
		return
	}
	for range probeTries {
		n := w.Nodes[w.Jobs[job].Sender]
		t := w.Give(n, w.Jobs[job].End(w, effects.OK, nil), Its(n).Cfg.PutTimeout)
		w.RunUntil(w.Now+int64(w.patience()), func() bool { return w.Commands[t-1].Over && w.Unfinished == 0 })
		if c := &w.Commands[t-1]; w.Failure != nil || c.Over && (c.Code == effects.OK || c.Code == effects.NotSent) {
			return
		}
		// The lane may be waiting for an answer that is lost, for longer than an end has time.
		w.RunUntil(w.Now+int64(Its(n).Cfg.ReplyTimeout), nil)
	}
	w.Fail("L9", "after all faults ended, node %d is never told how requests of node %d ended",
		oracle.Node(w.Jobs[job].Receiver), oracle.Node(w.Jobs[job].Sender))
}

// probeAlone is Probe where a job is all nodes'.
func probeAlone(w *Cluster) {
	for try := range uint32(probeTries) {
		i := len(w.Jobs)
		j := w.NewJob(w.Plan.requests+try, 0, 1)
		j.probe = true
		j.addKey(w, w.Plan.keys+try)
		j.cut(1)
		j.start(w)
		w.RunUntil(w.Now+int64(w.patience()), func() bool { return w.Jobs[i].served && w.Unfinished == 0 })
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

// Serve notes whether its reader has got all of it.
func (j *Job) Serve(all bool) { j.served = all }

// goesTo has a probe go by layers where a put of one page is of no use: to who has pages for more.
func (j *Job) goesTo(w *Cluster) {
	for _, f := range w.Flows {
		if f.Holds == nil || Its(w.Nodes[j.Sender]).Cfg.Layers == 0 {
			continue
		}
		if j.Together = f.Holds(w.Source, plan.Node(j.Receiver)); j.Together > 0 {
			j.Said = plan.Said{f.Word: true}
		}
	}
}

// Probes says whether it was made after healing, and must succeed.
func (j *Job) Probes() bool { return j.probe }

// sluggish says whether the world's own delays make a fetch of one chunk last as long as its time, an offer as long
// as a few messages, or the answer to it, which over a communicator waits for several things that the device does, as
// long as its sender waits for that: then each may end as expired, and that one of a few does not is nobody's promise.
func (w *Cluster) sluggish(from, to *world.Node) bool {
	c := &w.Plan.Rank
	useful := c.PullTTL - c.LeaseGuard // how long a reader may read, or keep, what is offered
	if to.Delays {
		useful -= c.LeadMin
	}
	return from.Pulls && (to.Delays && c.FetchTimeout < 6*(w.Setting.Device+w.Setting.Scatter) ||
		w.Source.Topology.Communicators && c.ReplyTimeout < 8*w.Setting.Device ||
		useful < 12*effects.Duration(w.Source.Delays.Message))
}

// Each try can end on one connection that broke while nothing was sent on it: nobody
// can know before.
const probeTries = 6

// probesMax is how many probes there can be.
func (s *Setting) probesMax() int { return s.Senders * s.Receivers * probeTries }

// forgotten is longer than a sender remembers requests whose last batch never came;
// a table full of them refuses new ones until then.
const forgotten = 70 * effects.Second
