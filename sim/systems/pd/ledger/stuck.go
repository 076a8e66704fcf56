package ledger

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/communicator"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// Hardware that hangs keeps pages. Therefore an epoch is fenced if a batch that was cancelled does not end within the
// grace period, or if no batch ends within the patience period. The machine acts when it is next called with the time
// after that, neither earlier nor later.

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkGrace    = oracle.NewCheck("L2", "batches that were cancelled, in time")
	checkPatience = oracle.NewCheck("L2", "batches without progress, in time")
)

// stuckOracle judges how long a node waits for batches (L2).
type stuckOracle struct {
	judge
	links []hung `snap:"skip"` // empty in small worlds, in which time has no length
}

func (*stuckOracle) listen(l *oracle.Listen[stuckOracle]) {
	oracle.On(l, func(o *stuckOracle, _ *oracle.Call, e world.EpochSubmitted) { o.submits(e.Node, e.Link, e.Transfer) })
	oracle.On(l, func(o *stuckOracle, _ *oracle.Call, e world.EpochTold) { o.told(e.Node, e.Link, e.Event) })
	oracle.On(l, func(o *stuckOracle, _ *oracle.Call, e world.EpochEnded) { o.ends(e.Link, e.Transfer, e.Post) })
}

// reset drops the records of the previous run, because links are numbered anew in each run.
func (or *stuckOracle) reset(int) { or.links = or.links[:0] }

// hung records the batches that the hardware has in flight on a link, and the deadlines for these batches.
type hung struct {
	link, epoch       uint64
	flight            []uint64 // the transfer of each batch
	told              []uint64 // the transfers in flight that were cancelled
	graceBy, progress until    // the first may be zero
}

// until is an instant by which a machine must act, and how long the node had been frozen when the instant was set.
type until struct {
	at     effects.Time
	frozen int64
}

// in returns the instant that is d after now, by n's clock.
func (or *stuckOracle) in(n *world.Node, d effects.Duration) until {
	return until{or.w.Clock(n).Add(d), n.Frozen}
}

// over reports whether an instant has passed, with a grace period. Time in which the driver does not call the machine
// does not count. That time is measured by the machine's own clock, which may run fast.
func (or *stuckOracle) over(n *world.Node, u until) bool {
	frozen := or.w.Clock(n).Sub(n.Shows(or.w.Now - (n.Frozen - u.frozen)))
	return u.at != 0 && or.w.Clock(n) > u.at.Add(frozen+pd.Grace)
}

// of returns the record of a link's current epoch, and nil if nothing is in flight.
func (or *stuckOracle) of(x *world.Link) *hung {
	i := slices.IndexFunc(or.links, func(h hung) bool { return h.link == x.ID })
	if i < 0 {
		return nil
	}
	h := &or.links[i]
	if e := x.Comm.Epoch(h.epoch); e.Fenced || e.Over || len(h.flight) == 0 {
		or.links = slices.Delete(or.links, i, i+1)
		return nil
	}
	return h
}

// submits records a batch when the batch is submitted to the hardware.
func (or *stuckOracle) submits(n *world.Node, x *world.Link, t *world.Transfer) {
	if or.w.Seed >= draw.RestlessSeed {
		return
	}
	h := or.of(x)
	if h == nil {
		or.links = append(or.links, hung{link: x.ID, epoch: x.Comm.M.Epoch(), progress: or.in(n, or.w.CommRules().ProgressTimeout)})
		h = &or.links[len(or.links)-1]
	}
	h.flight = append(h.flight, t.ID)
}

// told checks, when an event reaches a machine, that the machine has fenced every epoch that is overdue.
func (or *stuckOracle) told(n *world.Node, x *world.Link, ev *communicator.Event) {
	h := or.of(x)
	if h == nil {
		return
	}
	if ev.Kind == communicator.Submitted { // The driver was busy until now, and received no events.
		for _, u := range []*until{&h.progress, &h.graceBy} {
			if now := or.in(n, 0); u.at != 0 && u.at < now.at {
				*u = now
			}
		}
		return
	}
	if or.overdue(n, x, h); or.w.Failure != nil || ev.Kind != communicator.BatchEnded || ev.Epoch != h.epoch || !ev.Succeeded {
		return
	}
	done := h.flight[0]
	h.flight = h.flight[1:]
	h.progress = or.in(n, or.w.CommRules().ProgressTimeout)
	if !slices.Contains(h.flight, done) {
		h.told = slices.DeleteFunc(h.told, func(id uint64) bool { return id == done })
	}
	if len(h.told) == 0 {
		h.graceBy = until{}
	}
}

// overdue fails the run if an epoch should be fenced by now and is not.
func (or *stuckOracle) overdue(n *world.Node, x *world.Link, h *hung) {
	or.judged(checkPatience)
	if h.graceBy.at != 0 {
		or.judged(checkGrace)
	}
	switch {
	case or.over(n, h.progress):
		or.fail(checkPatience, "node %d has waited for transfer %d on link %d beyond its patience, and does not end its "+
			"communicator",
			n.It(), oracle.Transfer(h.flight[0]), oracle.Link(x.ID))
	case or.over(n, h.graceBy):
		or.fail(checkGrace, "node %d has cancelled transfer %d on link %d, waits for it, and does not end its communicator",
			n.It(), oracle.Transfer(h.told[0]), oracle.Link(x.ID))
	}
}

// ends records that a transfer was cancelled while the hardware has a batch of the transfer.
func (or *stuckOracle) ends(x *world.Link, t *world.Transfer, p communicator.Post) {
	h := or.of(x)
	if h == nil || p.Code != effects.Cancelled || p.Settled || !slices.Contains(h.flight, t.ID) {
		return
	}
	if h.told = append(h.told, t.ID); h.graceBy.at == 0 {
		h.graceBy = or.in(or.w.Nodes[x.From], or.w.CommRules().Grace)
	}
}
