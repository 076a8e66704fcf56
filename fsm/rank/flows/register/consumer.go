package register

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory/geometry"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// A Consumer has blocks written into.
type Consumer struct {
	cfg        *Settings     `snap:"share"`
	whole      geometry.Plan `snap:"share"` // all pages of ours
	own        []uint64      `snap:"share"` // Numbers of ours
	receptions table.Slab[reception]
	parts      table.Slab[part]
	errands    errands
	lines      []line // by the slot of the outbound peer
	operation  uint64 // of the last part

	ask    protocol.PushRegistration `snap:"scratch"`
	off    protocol.PushWithdrawal   `snap:"scratch"`
	end    protocol.PushEnd          `snap:"scratch"`
	theirs geometry.Geometry         `snap:"scratch"`
	pages  []effects.Page            `snap:"scratch"`
	groups [][]uint64                `snap:"scratch"`
	plans  []geometry.Plan           `snap:"scratch"`
	peers  []table.Handle            `snap:"scratch"`
}

// A line is what waits for one peer, oldest first.
type line struct {
	asks  table.List   // parts to be registered
	words table.List   // parts to be withdrawn
	kept  table.List   // errands, all of them
	conn  effects.Conn // on which errands are told
	who   effects.Incarnation
	next  kernel.TimerID `snap:"set"` // when they are to be told, or their answer is overdue
	tells bool           // one is under way
	due   bool           // it is time
}

// A reception is one Register. Its outcome and its end are two things: it stays until nothing can be written into its
// blocks, and each registration of it has its answer, or will have none.
type reception struct {
	ticket            effects.Ticket
	request, transfer []byte
	engine            []byte
	blocks            lists
	pages             []effects.Page // claimed
	parts             []table.Handle // in the order of producers; zero: over
	ranks, stages     uint32
	rows              uint32 // parts that are not over
	left              uint32 // of those, that have not ended well
	open              uint32 // grants
	delivered         bool
	returned          bool
	patience          effects.Duration
	deadline          effects.Time
	ends              effects.Time   // of the grants
	timer             kernel.TimerID `snap:"set"`
	plan              []partPlan     // as far as it is known who writes what
	code              effects.Code
	why               effects.Why
}

// A partPlan says which pages a rank writes, until it is known of all of them that no page lacks.
type partPlan struct {
	known bool
	plan  geometry.Plan
}

// A part is what one rank of a producer's writes.
type part struct {
	of        table.Handle
	place     uint32 // among the producers
	stage     uint32
	rank      uint32
	peer      table.Handle
	reached   uint64 // the link's attempt when it began to wait for it
	phase     partPhase
	operation uint64
	attempt   uint32
	tries     uint32 // how often it was answered that its time was over, and it was not by our clock
	again     bool   // it is to be registered anew, as soon as its grant is over
	told      uint32 // how often it was withdrawn
	who, us   effects.Incarnation
	caches    uint64 // Sum of ours and its producer's, as that said when it was granted
	grant     effects.GrantID
	count     uint32 // pages
	granted   effects.Time
	revoking  bool
	whole     bool // all of it was written
	asks      bool // its question is out
	tells     bool // its withdrawal is out
	queued    bool // its withdrawal waits
	conn      effects.Conn
	wordConn  effects.Conn
	answer    kernel.TimerID `snap:"set"` // when the answer to its withdrawal is overdue
	overdue   kernel.TimerID `snap:"set"` // and that to its registration, of which nothing more can become
}

type partPhase uint8

const (
	partLinking     partPhase = iota // for the link, or for its turn
	partAsking                       // registered
	partWithdrawing                  // its reception has its outcome
	partAnswered                     // nothing is said of it any more; its grant may be open
	partPhases
)

// Kinds of what a Consumer's Refs are for.
const (
	kindAsk     uint8 = iota + 1 // a registration
	kindOff                      // a withdrawal
	kindGrant                    // a part's grant
	kindKeep                     // a word on requests
	timerTakes                   // when a reception must have its outcome, or its grants end; its ticket
	timerOff                     // when the answer to a withdrawal is overdue
	timerAsk                     // and that to a registration
	timerKeep                    // when a peer is to be told of requests, or does not answer
	timerErrand                  // when an errand is over; its ticket
)

func consumerRef(kind uint8, h table.Handle) kernel.Ref {
	return kernel.Ref{Owner: kernel.OwnerConsumer, Kind: kind, Subject: h}
}

// Emptied returns a Consumer that wants nothing of so many peers, in the memory of c, which is not used any more.
func (c *Consumer) Emptied(cfg *Settings, peers uint32) Consumer {
	e := Consumer{
		cfg: cfg, receptions: c.receptions.Emptied(int(cfg.ReceptionsMax)), parts: c.parts.Emptied(int(cfg.parts())),
		errands: c.errands.emptied(cfg), lines: table.Zeroed(c.lines, int(peers)),
		ask: c.ask, end: c.end, pages: c.pages, groups: c.groups, peers: c.peers,
	}
	if cfg.On() {
		e.whole, e.own = whole(cfg.Geometry), Numbers(cfg.Geometry)
	}
	return e
}

// Step takes a command, or what becomes of what was asked for.
func (c *Consumer) Step(e *flow.Env, ref kernel.Ref, ev effects.Event) {
	switch x := ev.(type) {
	case *effects.Command:
		switch body := x.Body.(type) {
		case *Register:
			c.take(e, x.Ticket, body)
		case *Expect:
			c.beginErrand(e, x.Ticket, body.Request, body.Transfer, body.Producers, body.Patience, false)
		case *NotNeeded:
			c.beginErrand(e, x.Ticket, body.Request, body.Transfer, body.Producers, body.Patience, true)
		}
	case *effects.Replied:
		switch ref.Kind {
		case kindAsk:
			c.answered(e, ref.Subject, x.Body)
		case kindOff:
			c.withdrawn(e, ref.Subject, x.Body)
		case kindKeep:
			c.wordAnswered(e, ref.Subject, x.Body, effects.OK)
		}
	case *effects.Unanswered:
		switch ref.Kind {
		case kindAsk:
			c.unanswered(e, ref.Subject, x.Code)
		case kindOff:
			c.unheard(e, ref.Subject)
		case kindKeep:
			c.wordAnswered(e, ref.Subject, nil, x.Code)
		}
	case *effects.Landed:
		c.landed(e, ref.Subject, x)
	case *effects.Revoked:
		c.revoked(e, ref.Subject)
	default:
		kernel.Foreign("who has blocks written into")
	}
}

// Due takes a deadline.
func (c *Consumer) Due(e *flow.Env, ref kernel.Ref) {
	h := ref.Subject
	switch ref.Kind {
	case timerTakes:
		c.late(e, h)
	case timerOff:
		p := c.parts.Get(h)
		p.answer = 0
		e.Links.CloseTaken(&e.Env, p.peer, laneWords, p.wordConn)
	case timerAsk:
		p := c.parts.Get(h)
		p.overdue = 0
		e.Out.Mark(Marks.AnswerOverdue)
		e.Links.CloseTaken(&e.Env, p.peer, laneAsks, p.conn)
	case timerKeep:
		c.wordTimeout(e, h)
	case timerErrand:
		c.errandLate(e, h)
	}
}

// Signal is told that a peer changed: who waits for it goes on.
func (c *Consumer) Signal(e *flow.Env, ref kernel.Ref, s flow.Signal) {
	if s.Kind != flow.Changed {
		kernel.Foreign("who has blocks written into")
	}
	c.pump(e, ref.Subject)
}

// Abort ends a command early, and says whether there was anything to end.
func (c *Consumer) Abort(e *flow.Env, ref kernel.Ref) bool {
	if ref.Kind == timerErrand {
		c.endErrand(e, ref.Subject, effects.Cancelled, nil)
		return true
	}
	if r := c.receptions.Get(ref.Subject); r.delivered {
		return false
	}
	c.stop(e, ref.Subject, effects.Cancelled, effects.Why{})
	return true
}

// Left counts what a drain waits for.
func (c *Consumer) Left(*flow.Env) int { return c.receptions.Len() + c.errands.rows.Len() }

// Len is how many receptions there are.
func (c *Consumer) Len() int { return c.receptions.Len() }

// Tables shows what is in the tables of who has blocks written into.
func (c *Consumer) Tables(visit table.Visit) {
	visit("receptions", c.receptions.Len(), table.Empty)
	visit("parts of receptions", c.parts.Len(), table.Empty)
	visit("requests expected", c.errands.wishes.Len(), table.Empty)
}

// DrainAt ends what is at a slot, for a drain, and says whether there are more.
func (c *Consumer) DrainAt(e *flow.Env, slot int32) (more bool) {
	h := c.receptions.At(slot)
	if r := c.receptions.Get(h); r != nil && !r.delivered {
		e.Work.Spend(len(r.pages))
		c.stop(e, h, effects.Draining, *ended(effects.Draining))
	}
	if r := c.receptions.Get(h); r != nil { // Who leaves does not wait for others' words.
		for _, ph := range r.parts {
			if p := c.parts.Get(ph); p != nil && p.of == h && p.grant != 0 && !p.revoking {
				c.revoke(e, p)
			}
		}
	}
	if h := c.errands.wishes.At(slot); c.errands.wishes.Get(h) != nil {
		c.endErrand(e, h, effects.Draining, nil)
	}
	return slot < max(c.receptions.Slots(), c.errands.wishes.Slots())
}

// Lost handles that a peer's link to our pages is gone. On fenced planes it cannot write any more: what it was granted
// is taken back, and what it was to write will not come.
func (c *Consumer) Lost(e *flow.Env, peer effects.Incarnation) {
	if e.Cfg.Leased {
		return
	}
	e.Work.Looks(int(c.parts.Slots()))
	for slot := range c.parts.Slots() {
		h := c.parts.At(slot)
		p := c.parts.Get(h)
		if p == nil || p.who != peer || p.grant == 0 || p.revoking {
			continue
		}
		e.Out.Mark(Marks.WriterLost)
		of := p.of
		c.revoke(e, p)
		if !c.receptions.Get(of).delivered {
			c.stop(e, of, effects.PeerLost, *flow.Cut())
		}
	}
}

// State is where what a Ref is of stands.
func (c *Consumer) State(_ *flow.Rooms, ref kernel.Ref) uint16 {
	switch ref.Kind {
	case kindAsk, kindOff, kindGrant, timerOff, timerAsk:
		if p := c.parts.Get(ref.Subject); p != nil {
			return 1 + uint16(p.phase)
		}
	case timerTakes:
		if r := c.receptions.Get(ref.Subject); r != nil && r.delivered {
			return 1 + uint16(partPhases)
		}
		return 2 + uint16(partPhases)
	case kindKeep, timerKeep, timerErrand:
		return 3 + uint16(partPhases)
	}
	return 0
}

// ConsumerStates is how many there are.
const ConsumerStates = int(partPhases) + 4

// ConsumerStateNames are their names.
func ConsumerStateNames() []string {
	return []string{
		"part over", "part linking", "part asking", "part withdrawing", "part answered", "reception ending",
		"reception open", "requests expected",
	}
}

var _ flow.Flow = (*Consumer)(nil)
