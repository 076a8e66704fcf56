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

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkLeftAlone  = oracle.NewCheck("L4", "puts to who is full")
	checkAskedAlone = oracle.NewCheck("S7", "requests to who is left alone")
)

// breakerOracle judges the circuit breakers: from which receivers a sender backs off, and for how long (L4, S7).
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

// breakerLife records the circuit breakers of an incarnation of a sender.
type breakerLife struct {
	by    []fullSeen    // indexed by the receiver's node; empty before the first record
	asked []askedToFull `snap:"skip"`
	// busy is the first step of the current series of steps after each of which the machine had work left. It is 0 if
	// the last step left no work.
	busy uint64 `snap:"skip"`
}

// askedToFull records an allocation request or an offer that is in flight, with a digest of the keys and the request
// that the message names.
type askedToFull struct {
	conn uint64
	corr effects.Corr
	what uint64
	// chunks is the number of chunks that need room. It is 0 if the request does not wait at the receiver, so that a
	// refusal opens no breaker.
	chunks uint32
}

// askedLate is the number of recorded requests from which on requests of closed connections are removed.
const askedLate = 32

func (s *breakerLife) startReply() { *s = breakerLife{by: s.by[:0], asked: s.asked[:0]} }

// fullSeen records what a receiver reported to an incarnation of a sender about lack of room, and the state of the
// sender's circuit breaker.
type fullSeen struct {
	told  bool
	last  effects.Time // by the sender's clock, like all times here
	step  uint64       // the step of the sender that received the last report
	until effects.Time // the breaker is open until then, because a put ended for lack of room
	since effects.Time // when the breaker opened
	// least is the number of chunks of the smallest put that was refused. The breaker may apply to puts of at least as
	// many chunks; 0 means any put.
	least uint32
	alone uint32 // number of chunks of the last put that was refused; 0 means any put
	// within is the newest step that began while the receiver's last reply could still keep the breaker open.
	within uint64 `snap:"skip"`
	// granted is the step in which the sender last received a grant. The next field is the digest of the put that got
	// the grant.
	granted uint64 `snap:"skip"`
	what    uint64 `snap:"skip"`
}

// full returns the record of a sender about a receiver.
func (or *breakerOracle) full(n *world.Node, receiver int32) *fullSeen {
	my := or.at(n)
	for len(my.by) < len(or.w.Nodes) {
		my.by = append(my.by, fullSeen{})
	}
	return &my.by[receiver]
}

// heard records a reply in which a receiver reports lack of room, when the reply reaches the sender's machine.
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
	} else if m, is := at(&t.reply, t.turn, body); is { // The reply may have any tag.
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
			return // Such a reply opens no breaker.
		}
		f := or.full(n, c.Server)
		if code != effects.NoMemory {
			chunks = 0
		}
		if c.Closed { // The sender may not read this reply. Then an earlier reply counts.
			f.alone = max(f.alone, chunks)
		} else {
			f.alone = chunks
		}
		if chunks == math.MaxUint32 {
			chunks = 0 // The request of the reply is unknown, because the connection is closed.
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

// putEnded judges the end of a put. If the put ends because of a "full" reply, in the step that receives the reply, the
// breaker is open from then on. No put may end as BackedOff without a "full" reply, or after the breaker's time (L4). A
// put on a connection that failed earlier reads no reply, and may end with the same code for a different reason.
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
		return // The oracle does not read the replies of the plain reader.
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
		// The put was in flight when the breaker opened, and must end by the reply to the put.
		or.fail(checkLeftAlone,
			"node %d ends a put as if node %d were full, in the step in which that gives it what it asked for",
			n.It(), oracle.Node(or.w.Jobs[c.Job].Receiver))
	}
}

// stops reports whether a machine may still have to end, because of the open breaker, a put that was issued in the
// given step: the breaker was open in that step, and the machine has had work left after each step since. A machine
// ends a bounded number of puts in each step, and the driver may call the machine late for the rest.
func (my *breakerLife) stops(f *fullSeen, given uint64) bool {
	return my.busy != 0 && my.busy <= f.within && given <= f.within
}

// afterStep records whether the machine has work left, and which breakers may be open.
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

// whatOf returns a digest of the keys and the request of a put.
func (or *breakerOracle) whatOf(c *pd.Command) uint64 {
	p := c.Body.(*ops.Put)
	return digest('p', p.Keys, p.Request, 0)
}

// alone reports whether the digest of a put is unique among the pending puts.
func (or *breakerOracle) alone(n *world.Node, put effects.Ticket) bool {
	what := or.whatOf(&or.w.Commands[put-1])
	return !slices.ContainsFunc(or.w.Undone.Some, func(t effects.Ticket) bool {
		o := &or.w.Commands[t-1]
		return t != put && o.Want == plan.WantPut && o.Node == n.ID && o.Life == n.Life && !o.Over && or.whatOf(o) == what
	})
}

// asking checks that no allocation request is sent to a receiver while the breaker for the receiver is open (S7).
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
		return // The message withdraws or ends earlier requests.
	}
	my := or.at(n)
	if len(my.asked) >= askedLate { // A reply may still arrive after the connection is closed.
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

// forgotten reports whether a sender may have dropped the breaker of a receiver. A sender keeps breakers for a bounded
// number of addresses: the addresses of the receivers that reported lack of room most recently. A plain receiver's
// address may occupy a place, too.
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

// fullMeets counts, for the coverage of the run, a breaker that opens while a request to the same receiver is in
// flight.
func (or *breakerOracle) fullMeets(n *world.Node, receiver int32) {
	if slices.ContainsFunc(or.w.Going.Conns.Some, func(c *world.Conn) bool {
		return c.Client == n.ID && c.Life == n.Life && c.Server == receiver && c.Channel == effects.ChannelAlloc &&
			c.Asking > 0 && !c.Closed
	}) {
		pd.Met(&or.w.Result, pd.FullUnderWay)
	}
}
