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

// Hardware that hangs keeps pages. So an epoch is fenced where a batch that was cancelled does not end within the
// grace, and where none ends within the patience; not earlier than somebody looks at the clock, and no later.

// What is judged here.
var (
	checkGrace    = oracle.NewCheck("L2", "batches that were cancelled, in time")
	checkPatience = oracle.NewCheck("L2", "batches without progress, in time")
)

// stuckOracle judges how long batches are waited for.
type stuckOracle struct {
	judge
	links []hung `snap:"skip"` // none in small worlds, whose time has no length
}

func (*stuckOracle) listen(l *oracle.Listen[stuckOracle]) {
	oracle.On(l, func(o *stuckOracle, _ *oracle.Call, e world.EpochSubmitted) { o.submits(e.Node, e.Link, e.Transfer) })
	oracle.On(l, func(o *stuckOracle, _ *oracle.Call, e world.EpochTold) { o.told(e.Node, e.Link, e.Event) })
	oracle.On(l, func(o *stuckOracle, _ *oracle.Call, e world.EpochEnded) { o.ends(e.Link, e.Transfer, e.Post) })
}

// reset drops what hardware had in the run before: links are numbered anew in each run.
func (or *stuckOracle) reset(int) { or.links = or.links[:0] }

// hung is what hardware has of one link, and until when it may.
type hung struct {
	link, epoch       uint64
	flight            []uint64 // transfers, one a batch
	told              []uint64 // those of them that were cancelled
	graceBy, progress until    // the one may be zero
}

// until is an instant, and how long the node had been frozen when it was set.
type until struct {
	at     effects.Time
	frozen int64
}

// in is so much later than now, by n's clock.
func (or *stuckOracle) in(n *world.Node, d effects.Duration) until {
	return until{or.w.Clock(n).Add(d), n.Frozen}
}

// over says whether it is over for long. A machine owes nothing to a driver that does not call it: for as long as that
// was by its own clock, which may run fast.
func (or *stuckOracle) over(n *world.Node, u until) bool {
	frozen := or.w.Clock(n).Sub(n.Shows(or.w.Now - (n.Frozen - u.frozen)))
	return u.at != 0 && or.w.Clock(n) > u.at.Add(frozen+pd.Grace)
}

// of is what is known of a link's present epoch; nil if nothing is under way.
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

// submits notes a batch as hardware gets it.
func (or *stuckOracle) submits(n *world.Node, x *world.Link, t *world.Transfer) {
	if or.w.Seed >= draw.RestlessSeed {
		return
	}
	h := or.of(x)
	if h == nil {
		or.links = append(or.links, hung{link: x.ID, epoch: x.Comm.M.Epoch(), progress: or.in(n, or.w.CommRules().Patience)})
		h = &or.links[len(or.links)-1]
	}
	h.flight = append(h.flight, t.ID)
}

// told judges that an event comes to a machine that has fenced what is overdue.
func (or *stuckOracle) told(n *world.Node, x *world.Link, ev *communicator.Event) {
	h := or.of(x)
	if h == nil {
		return
	}
	if ev.Kind == communicator.Submitted { // Its driver was busy until now, and listened to nothing.
		for _, u := range []*until{&h.progress, &h.graceBy} {
			if now := or.in(n, 0); u.at != 0 && u.at < now.at {
				*u = now
			}
		}
		return
	}
	if or.overdue(n, x, h); or.w.Failure != nil || ev.Kind != communicator.BatchEnded || ev.Epoch != h.epoch || !ev.Well {
		return
	}
	done := h.flight[0]
	h.flight = h.flight[1:]
	h.progress = or.in(n, or.w.CommRules().Patience)
	if !slices.Contains(h.flight, done) {
		h.told = slices.DeleteFunc(h.told, func(id uint64) bool { return id == done })
	}
	if len(h.told) == 0 {
		h.graceBy = until{}
	}
}

// overdue fails where an epoch that should have been fenced is not.
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

// ends notes that a transfer was cancelled while hardware has a batch of it.
func (or *stuckOracle) ends(x *world.Link, t *world.Transfer, p communicator.Post) {
	h := or.of(x)
	if h == nil || p.Code != effects.Cancelled || p.Settled || !slices.Contains(h.flight, t.ID) {
		return
	}
	if h.told = append(h.told, t.ID); h.graceBy.at == 0 {
		h.graceBy = or.in(or.w.Nodes[x.From], or.w.CommRules().Grace)
	}
}
