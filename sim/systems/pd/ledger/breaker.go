package ledger

import (
	"cmp"
	"math"
	"slices"

	"github.com/kvferry/kvferry/effects"
	ops "github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// What is judged here.
var (
	checkLeftAlone  = oracle.NewCheck("L4", "puts to who is full")
	checkAskedAlone = oracle.NewCheck("S7", "requests to who is left alone")
)

// breakerOracle judges who is left alone, and for how long.
type breakerOracle struct {
	judge
	perLife[breakerLife]
}

func (*breakerOracle) listen(l *oracle.Listen[breakerOracle]) {
	oracle.On(l, func(o *breakerOracle, _ *oracle.Call, e world.Sending) { o.asking(e.Node, e.Conn, e.Corr, e.Body) })
	oracle.On(l, func(o *breakerOracle, _ *oracle.Call, e world.Replied) { o.heard(e.Node, e.Conn, e.Corr, e.Body) })
	oracle.On(l, func(o *breakerOracle, _ *oracle.Call, e pd.PutEnded) { o.putEnded(e.Node, e.Command, e.Effect) })
	oracle.On(l, func(o *breakerOracle, _ *oracle.Call, e counted) { o.afterStep(e.node) })
}

type breakerLife struct {
	by    []fullSeen    // by the receiver's node; empty before the first
	asked []askedToFull `snap:"skip"`
	// busy is the first of the steps in a row after each of which the machine had work left, up to its last one; 0: the
	// last one left none.
	busy uint64 `snap:"skip"`
}

// An askedToFull is a request for pages, or an offer, that is in flight: what is put by it.
type askedToFull struct {
	conn uint64
	corr effects.Corr
	what uint64
	// chunks is how many it needs room for; 0: it does not wait there, and nobody is left alone for it.
	chunks uint32
}

// askedLate is how many requests are remembered whose connections are closed.
const askedLate = 32

func (s *breakerLife) empty() { *s = breakerLife{by: s.by[:0], asked: s.asked[:0]} }

// A fullSeen is what one life of a sender was told of a receiver that had nothing to give.
type fullSeen struct {
	told  bool
	last  effects.Time // by the sender's clock, like all of them
	step  uint64       // of the sender, that was told last
	until effects.Time // while it is left alone, because a put ended of it
	since effects.Time // when that began
	// least is the fewest chunks of a put that it was told so for, and may leave it alone with; 0: of any.
	least uint32
	alone uint32 // likewise, of the one that was told last
	// within is the newest step that began while the receiver's last answer could still have it left alone.
	within uint64 `snap:"skip"`
	// granted is the step in which it is told last that it was given what it asked for, and what was put by that.
	granted uint64 `snap:"skip"`
	what    uint64 `snap:"skip"`
}

func (or *breakerOracle) full(n *world.Node, receiver int32) *fullSeen {
	my := or.at(n)
	for len(my.by) < len(or.w.Nodes) {
		my.by = append(my.by, fullSeen{})
	}
	return &my.by[receiver]
}

// heard notes that a receiver says it is full, as the answer reaches its sender's machine.
func (or *breakerOracle) heard(n *world.Node, c *world.Conn, corr effects.Corr, body []byte) {
	if pd.Its(n).Cfg.BreakerTTL <= 0 || c.Channel != effects.ChannelAlloc || c.Server < 0 {
		return
	}
	my, what, chunks := or.at(n), uint64(0), uint32(math.MaxUint32)
	if i := slices.IndexFunc(my.asked, func(x askedToFull) bool { return x.conn == c.ID && x.corr == corr }); i >= 0 {
		what, chunks = my.asked[i].what, my.asked[i].chunks
		my.asked = slices.Delete(my.asked, i, i+1)
	}
	code, told, failed := effects.OK, uint32(0), false
	t := or.truth()
	if acked, is := t.asAck(body); is {
		failed, told = acked.AllocFailed, acked.Ext.Code
	} else if m, is := at(&t.reply, t.turn, body); is { // Of any tag that it may have.
		failed, told = m.AllocFailed, m.Ext.Code
	}
	if failed {
		code = effects.NoMemory
	}
	if told != 0 {
		code = effects.CodeFromWire(told)
	}
	if code == effects.NoMemory || code == effects.TooMany || code == effects.Draining {
		if chunks == 0 {
			return // Nobody leaves it alone for that.
		}
		f := or.full(n, c.Server)
		if code != effects.NoMemory {
			chunks = 0
		}
		if c.Closed { // The sender may not read this answer, and then an earlier one holds.
			f.alone = max(f.alone, chunks)
		} else {
			f.alone = chunks
		}
		if chunks == math.MaxUint32 {
			chunks = 0 // It is not known which one was answered: its connection is closed.
		}
		if !f.told || or.w.Clock(n) > f.last.Add(pd.Its(n).Cfg.BreakerTTL) && !my.stops(f, f.within) {
			f.least = chunks
		}
		f.least = min(f.least, chunks)
		f.told, f.last, f.step = true, or.w.Clock(n), n.Steps+1
	} else if code == effects.OK && !c.Closed {
		f := or.full(n, c.Server)
		f.granted, f.what = n.Steps+1, what
	}
}

// putEnded: of a put that ends in the step that was told, by that word, its receiver is left alone from then on; and
// nobody is left alone without that, or longer than was said (L4). One whose connection had failed before reads no
// answer, and may end with the same code for another reason.
func (or *breakerOracle) putEnded(n *world.Node, c *pd.Command, e *effects.Deliver) {
	code := e.Code
	if pd.Its(n).Cfg.BreakerTTL <= 0 {
		or.judged(checkLeftAlone)
		if code == effects.BackedOff {
			or.fail(checkLeftAlone, "node %d has no breaker, and yet leaves node %d alone",
				n.It(), oracle.Node(or.w.Jobs[c.Job].Receiver))
		}
		return
	}
	if or.w.Jobs[c.Job].PlainTo {
		or.void(checkLeftAlone)
		return // Nobody reads its answers here.
	}
	or.judged(checkLeftAlone)
	f, now := or.full(n, or.w.Jobs[c.Job].Receiver), or.w.Clock(n)
	over := now > f.last.Add(pd.Its(n).Cfg.BreakerTTL) && !or.at(n).stops(f, c.Step)
	switch {
	case code == effects.BackedOff && (!f.told || over):
		or.fail(checkLeftAlone, "node %d leaves node %d alone, which did not say for so long that it is full",
			n.It(), oracle.Node(or.w.Jobs[c.Job].Receiver))
	case code == effects.BackedOff && uint32(len(c.Body.(*ops.Put).Keys)) < f.least:
		or.fail(checkLeftAlone, "node %d leaves node %d alone with a put of %d chunks, which was full for %d at the fewest",
			n.It(), oracle.Node(or.w.Jobs[c.Job].Receiver), len(c.Body.(*ops.Put).Keys), f.least)
	case e.Why != nil && e.Why.Stage == effects.StageConnect:
	case f.told && f.step == n.Steps && (code == effects.NoMemory || code == effects.TooMany || code == effects.Draining):
		f.until, f.since = now.Add(pd.Its(n).Cfg.BreakerTTL), now
		or.fullMeets(n, or.w.Jobs[c.Job].Receiver)
	case code == effects.BackedOff && f.granted == n.Steps && f.what == or.whatOf(c) && or.alone(n, e.Ticket):
		// It was in flight when the breaker opened, and ends by its answer.
		or.fail(checkLeftAlone,
			"node %d ends a put as if node %d were full, in the step in which that gives it what it asked for",
			n.It(), oracle.Node(or.w.Jobs[c.Job].Receiver))
	}
}

// stops says whether a machine may still be ending a put that it was given in that step, because its receiver said that
// it is full: it was left alone then, and the machine has had work left after each step since. A machine ends a bounded
// number of puts in each step, and its driver may call it late for the rest.
func (my *breakerLife) stops(f *fullSeen, given uint64) bool {
	return my.busy != 0 && my.busy <= f.within && given <= f.within
}

// afterStep notes whether the machine has work left, and whom it may leave alone.
func (or *breakerOracle) afterStep(n *world.Node) {
	my := or.at(n)
	switch {
	case !n.Busy:
		my.busy = 0
	case my.busy == 0:
		my.busy = n.Steps
	}
	for i := range my.by {
		if f := &my.by[i]; f.told && or.w.Clock(n) <= f.last.Add(pd.Its(n).Cfg.BreakerTTL) {
			f.within = n.Steps
		}
	}
}

// whatOf tells puts apart by what they are of.
func (or *breakerOracle) whatOf(c *pd.Command) uint64 {
	p := c.Body.(*ops.Put)
	return digest('p', p.Keys, p.Request, 0)
}

// alone says whether no other put that has not ended is of the same.
func (or *breakerOracle) alone(n *world.Node, put effects.Ticket) bool {
	what := or.whatOf(&or.w.Commands[put-1])
	return !slices.ContainsFunc(or.w.Undone.Some, func(t effects.Ticket) bool {
		o := &or.w.Commands[t-1]
		return t != put && o.Want == plan.WantPut && o.Node == n.ID && o.Life == n.Life && !o.Over && or.whatOf(o) == what
	})
}

// asking checks that a request for pages does not go to who is left alone.
func (or *breakerOracle) asking(n *world.Node, c *world.Conn, corr effects.Corr, body []byte) {
	if pd.Its(n).Cfg.BreakerTTL <= 0 || c.Channel != effects.ChannelAlloc || c.Server < 0 {
		return
	}
	keys, request, chunks := [][]byte(nil), []byte(nil), uint32(0)
	if offer, is := or.truth().asOffer(body); is {
		keys, request, chunks = offer.Keys, offer.Ext.Request, uint32(len(offer.Keys))
	} else if m, is := or.truth().asRequest(body); is {
		keys, request = m.Keys, m.Ext.Request
		if !m.HasExt || m.Ext.PatienceNS > 0 && m.Ext.Layers == 0 {
			chunks = uint32(len(m.Keys))
		}
	}
	if len(keys) == 0 {
		return // It takes back, or ends, what others asked for.
	}
	my := or.at(n)
	if len(my.asked) >= askedLate { // The answer to one may come when its connection is closed.
		my.asked = slices.DeleteFunc(my.asked, func(x askedToFull) bool { return or.w.ConnOf(x.conn).Closed })
	}
	my.asked = append(my.asked, askedToFull{c.ID, corr, digest('p', keys, request, 0), chunks})
	if !or.full(n, c.Server).told {
		return
	}
	if or.forgotten(n, c.Server) {
		or.void(checkAskedAlone)
		return
	}
	or.judged(checkAskedAlone)
	if f := or.full(n, c.Server); f.until > or.w.Clock(n) && chunks > 0 && chunks >= f.alone {
		or.fail(checkAskedAlone, "node %d asks node %d for pages, which it is to leave alone", n.It(), oracle.Node(c.Server))
	}
}

// forgotten reports whether a sender may have forgotten that it leaves a receiver alone: it remembers so many
// addresses, and those that said last that they are full. An outsider's address may be one of them.
func (or *breakerOracle) forgotten(n *world.Node, receiver int32) bool {
	cfg := &pd.Its(n).Cfg
	places := int(cmp.Or(cfg.Tuning.BreakersPerPeer, 4) * cmp.Or(cfg.PeersMax, 256))
	f, newer := or.full(n, receiver), 0
	if slices.ContainsFunc(or.w.Jobs, func(j pd.Job) bool { return j.PlainTo && j.Sender == n.ID }) {
		newer++
	}
	for i := range or.at(n).by {
		if x := &or.at(n).by[i]; int32(i) != receiver && x.told && x.last >= f.since {
			newer++
		}
	}
	return newer >= places
}

// fullMeets counts a breaker that opens beside a request to the same receiver.
func (or *breakerOracle) fullMeets(n *world.Node, receiver int32) {
	if slices.ContainsFunc(or.w.Going.Conns.Some, func(c *world.Conn) bool {
		return c.Client == n.ID && c.Life == n.Life && c.Server == receiver && c.Channel == effects.ChannelAlloc &&
			c.Asking > 0 && !c.Closed
	}) {
		pd.Met(&or.w.Result, pd.FullUnderWay)
	}
}
