package sim

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/sender"
	"github.com/kvferry/kvferry/sim/oracle"
)

// An engine's call may be too large for one put. Then it is given in parts, as package runtime does it: all of them at once,
// in order, and with nothing between them.

var checkTogether = newCheck("S9", "parts of one put")

// putParts puts the batches of a whole job.
func (w *world) putParts(n *node, i int) {
	batches := w.jobs[i].batches
	first := w.put(n, i, 0, uint32(len(batches)-1), 0)
	for bi := 1; bi < len(batches); bi++ {
		batches[bi-1].full = false
		w.put(n, i, bi, 0, first)
	}
}

// letGoParts gives back the parts of a call that will not be: one of them got no pages.
func (w *world) letGoParts(n *node, j *job) {
	for bi := range j.batches {
		if b := &j.batches[bi]; b.full {
			b.full = false
			w.giveRelease(n, b.reserve, w.stock.releases.one(sender.Release{Reserved: b.reserve}))
		}
	}
}

// joined notes that a put was taken: it counts for its request until it has ended.
func (w *world) joined(e *effects.Observe) {
	c := &w.commands[e.ID-1]
	if c.want != wantPut {
		return
	}
	w.jobs[c.job].batches[c.batch].joined = true
}

// together checks, when the parts of a call have ended, that all of them were taken or none: a request that ended without one of
// them would be told of as whole.
func (l *ledger) together(n *node) {
	if !l.w.parted {
		return
	}
	l.w.parted = false
	for i := range l.w.jobs {
		j := &l.w.jobs[i]
		if !j.whole || j.sender != n.id || j.puts > 0 || j.life != n.life {
			continue
		}
		given, taken := 0, 0
		for _, b := range j.batches {
			if b.put != 0 && !b.refilled {
				given++
				if b.joined {
					taken++
				}
			}
		}
		l.judged(checkTogether)
		if taken != 0 && taken != given {
			l.fail(checkTogether, "node %d took %d of the %d parts in which request %q was put, and refused the others",
				n.it(), taken, given, oracle.Request(j.name))
			return
		}
	}
}
