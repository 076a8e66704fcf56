package sim

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
)

// What the phases of a run mean to prefill and decode.

// patience is longer than any deadline of the plan takes.
func (w *world) patience() effects.Duration {
	c := &w.plan.Rank
	pulls := effects.Duration(0)
	if len(w.source.Topology.Pull) > 0 {
		pulls = 2*c.PullTTL + 2*c.ReadTimeout + 2*c.FetchTimeout + c.LoanMax
	}
	all := 2*c.PutTimeout + 3*c.ReserveTimeout + c.GetWaitMax + 2*c.Lease + pulls + 2*c.ReplyTimeout + c.Residual
	return 12*all/10 + w.plan.Faulty + 6*effects.Second
}

// overdue finds a command that should have ended, or given its memory back, by now.
func (w *world) overdue() {
	for i := range w.commands {
		c := &w.commands[i]
		switch {
		case !c.over && c.due != 0 && c.due < w.now:
			w.fail("L1", "node %d never delivers ticket %d (%s)", oracle.Node(c.node), oracle.Ticket(i+1), c.want)
			return
		case c.held && c.due+int64(w.patience()) < w.now:
			w.fail("L1", "node %d never returns the memory of ticket %d", oracle.Node(c.node), oracle.Ticket(i+1))
			return
		}
	}
}

// probe: from every sender to every receiver a transfer succeeds again (L5).
func (w *world) probe() {
	probes := uint32(0)
	for s := range w.plan.Senders {
		for i := range w.plan.Receivers {
			r := int(w.source.Receiver(i))
			if w.plan.Mismatch && (s == 0 || r == 0) || s == r {
				continue // Its configuration is what is wrong; and nobody sends to himself.
			}
			ok := false
			for try := 0; try < probeTries && !ok && w.failure == nil; try++ {
				i := len(w.jobs)
				j := w.newJob(w.plan.requests+probes, int32(s), int32(r))
				j.probe = true
				w.addKey(j, w.plan.keys+probes)
				probes++
				w.cutBatches(j, 1)
				w.startJob(i)
				served := func() bool { return w.jobs[i].served && w.unfinished == 0 }
				w.runUntil(w.now+int64(w.patience()), served)
				ok = w.jobs[i].served
				if !ok {
					w.runUntil(w.now+int64(forgotten), nil)
				}
			}
			if !ok && w.failure == nil && !w.sluggish(w.nodes[s], w.nodes[r]) {
				w.fail("L5", "after all faults ended, nothing gets from node %d to node %d",
					oracle.Node(s), oracle.Node(r))
			}
		}
	}
}

// sluggish says whether the world's own delays make a fetch of one chunk last as long as its time: then each may end as
// expired, and that one of a few does not is nobody's promise.
func (w *world) sluggish(from, to *node) bool {
	c := w.plan
	return from.pulls && to.delays && c.Rank.FetchTimeout < 6*(c.Device+c.Scatter)
}

// Each try can end on one connection that broke while nothing was sent on it: nobody
// can know before.
const probeTries = 6

// probesMax is how many probes there can be.
func (s *setting) probesMax() int { return s.Senders * s.Receivers * probeTries }

// forgotten is longer than a sender remembers requests whose last batch never came;
// a table full of them refuses new ones until then.
const forgotten = 70 * effects.Second
