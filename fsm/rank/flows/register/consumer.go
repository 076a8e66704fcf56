package register

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory/geometry"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// A Consumer is the flow that has blocks of its engine written by producers.
type Consumer struct {
	cfg        *Settings     `snap:"share"`
	whole      geometry.Plan `snap:"share"` // all pages of this rank
	own        []uint64      `snap:"share"` // Numbers of this rank
	receptions table.Slab[reception]
	parts      table.Slab[part]
	errands    errands
	lines      []line // by the slot of the outbound peer
	operation  uint64 // of the latest part

	ask    protocol.PushRegistration `snap:"scratch"`
	off    protocol.PushWithdrawal   `snap:"scratch"`
	end    protocol.PushEnd          `snap:"scratch"`
	theirs geometry.Geometry         `snap:"scratch"`
	pages  []effects.Page            `snap:"scratch"`
	groups [][]uint64                `snap:"scratch"`
	plans  []geometry.Plan           `snap:"scratch"`
	peers  []table.Handle            `snap:"scratch"`
}

// A line contains the queues for a peer, oldest first.
type line struct {
	asks  table.List   // parts to register
	words table.List   // parts to withdraw
	kept  table.List   // all errands
	conn  effects.Conn // connection of the errand message in flight
	who   effects.Incarnation
	// next fires when errands are due, or when the reply to an errand message is overdue.
	next  kernel.TimerID `snap:"set"`
	tells bool           // an errand message is in flight
	due   bool           // errands are due
}

// A reception is a Register. The outcome and the end of a reception are separate events: the reception remains until
// nothing can be written into the blocks, and each registration was answered or will not be answered.
type reception struct {
	ticket            effects.Ticket
	request, transfer []byte
	engine            []byte
	blocks            lists
	pages             []effects.Page // claimed pages
	// parts are in the order of producers; zero: removed.
	parts         []table.Handle
	ranks, stages uint32
	rows          uint32 // parts that were not removed
	left          uint32 // parts without a good end
	// open is the number of grants in force or in quarantine. Invariant: the blocks return to the engine only while
	// open is 0 (M1, M4).
	open      uint32
	delivered bool
	returned  bool
	patience  effects.Duration
	deadline  effects.Time
	ends      effects.Time   // end of the grants
	timer     kernel.TimerID `snap:"set"`
	// plan says, as far as known, which rank writes which pages.
	plan []partPlan
	code effects.Code
	why  effects.Why
}

// A partPlan says which pages a rank writes. When all plans are known, the consumer checks that they cover all pages.
type partPlan struct {
	known bool
	plan  geometry.Plan
}

// A part is what a producer rank writes of a reception.
type part struct {
	of    table.Handle
	place uint32 // index among the producers
	stage uint32
	rank  uint32
	peer  table.Handle
	// reached is the link's attempt number when the part began to wait for the link.
	reached   uint64
	phase     partPhase
	operation uint64
	attempt   uint32
	// tries counts replies that the time was over, or that the peer does not know this node, after which the part was
	// registered again.
	tries uint32
	// again says that the part will be registered again as soon as its grant has ended.
	again bool
	told  uint32 // number of withdrawals sent
	// who is the incarnation of the producer that was asked, and us the incarnation of this node for that producer
	// (M2).
	who, us effects.Incarnation
	// caches is the Sum of this rank's numbers and the producer's numbers when the pages were granted.
	caches   uint64
	grant    effects.GrantID
	count    uint32 // granted pages
	granted  effects.Time
	revoking bool
	whole    bool // all pages were written
	asks     bool // the registration is in flight
	tells    bool // the withdrawal is in flight
	queued   bool // the withdrawal is queued
	conn     effects.Conn
	wordConn effects.Conn
	// answer fires when the reply to the withdrawal is overdue.
	answer kernel.TimerID `snap:"set"`
	// overdue fires when the reply to a registration is overdue, after the reply has ceased to matter.
	overdue kernel.TimerID `snap:"set"`
}

type partPhase uint8

const (
	partLinking partPhase = iota // waits for the link, or for the lane
	partAsking                   // the registration was sent
	// The reception has its outcome, and the withdrawal is queued or in flight.
	partWithdrawing
	// Nothing more is sent for the part; its grant may still be open.
	partAnswered
	partPhases
)

// Kinds of the Refs of a Consumer.
const (
	kindAsk   uint8 = iota + 1 // a registration
	kindOff                    // a withdrawal
	kindGrant                  // the grant of a part
	kindKeep                   // an errand message
	// The deadline of a reception, or the end of the grants; also the ticket.
	timerTakes
	timerOff // the deadline of the reply to a withdrawal
	timerAsk // the deadline of the reply to a registration
	// The time of the next errand message, or the deadline of its reply.
	timerKeep
	timerErrand // the deadline of a wish, and its ticket
)

func consumerRef(kind uint8, h table.Handle) kernel.Ref {
	return kernel.Ref{Owner: kernel.OwnerConsumer, Kind: kind, Subject: h}
}

// Emptied returns a Consumer without receptions, for up to peers peers, and reuses the memory of c. The old c must
// not be used any more.
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

// Step handles completions, landed pages and revocations.
func (c *Consumer) Step(e *flow.Env, ref kernel.Ref, ev effects.Event) {
	switch x := ev.(type) {
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

// Command handles a Register, an Expect or a NotNeeded. It returns false for other commands.
func (c *Consumer) Command(e *flow.Env, x *effects.Command) bool {
	switch body := x.Body.(type) {
	case *Register:
		c.take(e, x.Ticket, body)
	case *Expect:
		c.beginErrand(e, x.Ticket, body.Request, body.Transfer, body.Producers, body.Patience, false)
	case *NotNeeded:
		c.beginErrand(e, x.Ticket, body.Request, body.Transfer, body.Producers, body.Patience, true)
	default:
		return false
	}
	return true
}

// Due handles a deadline.
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

// Signal handles a change of a peer: the queues of the peer are continued.
func (c *Consumer) Signal(e *flow.Env, ref kernel.Ref, s flow.Signal) {
	if s.Kind != flow.Changed {
		kernel.Foreign("who has blocks written into")
	}
	c.pump(e, ref.Subject)
}

// Abort ends a command early. It returns false if the outcome was delivered already.
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

// Left returns the number of rows that a drain waits for.
func (c *Consumer) Left(*flow.Env) int { return c.receptions.Len() + c.errands.rows.Len() }

// Len returns the number of receptions.
func (c *Consumer) Len() int { return c.receptions.Len() }

// Tables reports the sizes of the tables.
func (c *Consumer) Tables(visit table.Visit) {
	visit("receptions", c.receptions.Len(), table.Empty)
	visit("parts of receptions", c.parts.Len(), table.Empty)
	visit("requests expected", c.errands.wishes.Len(), table.Empty)
}

// DrainAt ends the reception and the wish in a slot, for a drain. It reports whether there are more slots.
func (c *Consumer) DrainAt(e *flow.Env, slot int32) (more bool) {
	h := c.receptions.At(slot)
	if r := c.receptions.Get(h); r != nil && !r.delivered {
		e.Work.Spend(len(r.pages))
		c.stop(e, h, effects.Draining, *ended(effects.Draining))
	}
	if r := c.receptions.Get(h); r != nil { // A drain does not wait for replies of peers.
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

// PeerLost handles the loss of a peer's link to this node's pages. On fenced planes the peer cannot write any more:
// the grants of the peer are revoked, and the receptions that the peer was to write end. On leased planes nothing
// happens, because the loss proves nothing there (M4).
func (c *Consumer) PeerLost(e *flow.Env, peer effects.Incarnation, _ bool) {
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

// State returns the state of the subject of a Ref.
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

// ConsumerStateNames returns the names of the states.
func ConsumerStateNames() []string {
	return []string{
		"part over", "part linking", "part asking", "part withdrawing", "part answered", "reception ending",
		"reception open", "requests expected",
	}
}

var _ flow.Flow = (*Consumer)(nil)
