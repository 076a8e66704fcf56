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
	cfg           *Settings     `snap:"share"`
	fullPlan      geometry.Plan `snap:"share"` // all pages of this rank
	ownNumbers    []uint64      `snap:"share"` // Numbers of this rank
	receptions    table.Slab[reception]
	parts         table.Slab[part]
	keeps         keepTable
	peerQueues    []peerQueue // by the slot of the outbound peer
	lastOperation uint64      // of the latest part

	registration protocol.PushRegistration `snap:"scratch"`
	withdrawal   protocol.PushWithdrawal   `snap:"scratch"`
	endMessage   protocol.PushEnd          `snap:"scratch"`
	peerGeometry geometry.Geometry         `snap:"scratch"`
	pages        []effects.Page            `snap:"scratch"`
	blockGroups  [][]uint64                `snap:"scratch"`
	plans        []geometry.Plan           `snap:"scratch"`
	peers        []table.Handle            `snap:"scratch"`
}

// A peerQueue contains the queues for a peer, oldest first.
type peerQueue struct {
	registrations table.List   // parts to register
	withdrawals   table.List   // parts to withdraw
	keepEntries   table.List   // all errands
	keepConn      effects.Conn // connection of the errand message in flight
	peerID        effects.Incarnation
	// keepTimer fires when errands are due, or when the reply to an errand message is overdue.
	keepTimer    kernel.TimerID `snap:"set"`
	keepInFlight bool           // an errand message is in flight
	// keepRound is the number of the latest round of heartbeats, and keepUnsent the number of errands that the round has
	// not named; 0: no round is due.
	keepRound  uint64
	keepUnsent int
	keepDueAt  effects.Time // when the next round of heartbeats begins, unless a further request is expected before
}

// A reception is a Register. The outcome and the end of a reception are separate events: the reception remains until
// nothing can be written into the blocks, and each registration was answered or will not be answered.
type reception struct {
	ticket            effects.Ticket
	request, transfer []byte
	engine            []byte
	blocks            blockLists
	pages             []effects.Page // claimed pages
	// parts are in the order of producers; zero: removed.
	parts           []table.Handle
	ranks, stages   uint32
	partCount       uint32 // parts that were not removed
	unfinishedParts uint32 // parts without a good end
	// openGrants is the number of grants in force or in quarantine. Invariant: the blocks return to the engine only
	// while open is 0 (M1, M4).
	openGrants     uint32
	delivered      bool
	blocksReturned bool
	trace          effects.Trace `snap:"skip"`
	startedAt      effects.Time  `snap:"skip"` // for the report
	// unsentParts is the number of parts whose registration was never sent, and sentAt is when that of the last one was.
	unsentParts uint32       `snap:"skip"`
	sentAt      effects.Time `snap:"skip"`
	timeout     effects.Duration
	deadline    effects.Time
	grantsEnd   effects.Time   // end of the grants
	timer       kernel.TimerID `snap:"set"`
	// plans says, as far as known, which rank writes which pages.
	plans []partPlan
	code  effects.Code
	why   effects.Why
}

// A partPlan says which pages a rank writes. When all plans are known, the consumer checks that they cover all pages.
type partPlan struct {
	isKnown bool
	plan    geometry.Plan
}

// A part is what a producer rank writes of a reception.
type part struct {
	reception     table.Handle
	producerIndex uint32 // index among the producers
	stage         uint32
	rank          uint32
	peer          table.Handle
	// linkAttempt is the link's attempt number when the part began to wait for the link.
	linkAttempt uint64
	phase       partPhase
	operation   uint64
	attempt     uint32
	asked       bool `snap:"skip"` // a registration was sent once; for the report
	// reregistrations counts replies that the time was over, or that the peer does not know this node, after which the
	// part was registered again.
	reregistrations uint32
	// mustReregister says that the part will be registered again as soon as its grant has ended.
	mustReregister  bool
	withdrawalsSent uint32 // number of withdrawals sent
	// peerID is the incarnation of the producer that was asked, and us the incarnation of this node for that producer
	// (M2).
	peerID, selfID effects.Incarnation
	// cacheSum is the Checksum of this rank's numbers and the producer's numbers when the pages were granted.
	cacheSum             uint64
	grant                effects.GrantID
	grantedPages         uint32 // granted pages
	grantedAt            effects.Time
	revoking             bool
	fullyWritten         bool // all pages were written
	registrationInFlight bool // the registration is in flight
	withdrawalInFlight   bool // the withdrawal is in flight
	withdrawalQueued     bool // the withdrawal is queued
	registrationConn     effects.Conn
	withdrawalConn       effects.Conn
	// withdrawalTimer fires when the reply to the withdrawal is overdue.
	withdrawalTimer kernel.TimerID `snap:"set"`
	// registrationTimer fires when the reply to a registration is overdue, after the reply has ceased to matter.
	registrationTimer kernel.TimerID `snap:"set"`
}

type partPhase uint8

const (
	partLinking     partPhase = iota // waits for the link, or for the lane
	partRegistering                  // the registration was sent
	// The reception has its outcome, and the withdrawal is queued or in flight.
	partWithdrawing
	// Nothing more is sent for the part; its grant may still be open.
	partIdle
	partPhaseCount
)

// Kinds of the Refs of a Consumer.
const (
	kindRegister   uint8 = iota + 1 // a registration
	kindWithdrawal                  // a withdrawal
	kindGrant                       // the grant of a part
	kindKeep                        // an errand message
	// The deadline of a reception, or the end of the grants; also the ticket.
	timerReception
	timerWithdrawal // the deadline of the reply to a withdrawal
	timerRegister   // the deadline of the reply to a registration
	// The time of the next errand message, or the deadline of its reply.
	timerKeep
	timerKeepCommand // the deadline of a wish, and its ticket
)

func consumerRef(kind uint8, h table.Handle) kernel.Ref {
	return kernel.Ref{Owner: kernel.OwnerConsumer, Kind: kind, Subject: h}
}

// Recycle returns a Consumer without receptions, for up to peers peers, and reuses the memory of c. The old c must
// not be used any more.
func (c *Consumer) Recycle(cfg *Settings, peers uint32) Consumer {
	e := Consumer{
		cfg: cfg, receptions: c.receptions.Recycle(int(cfg.ReceptionsMax)), parts: c.parts.Recycle(int(cfg.parts())),
		keeps: c.keeps.recycle(cfg), peerQueues: table.RecycleSlice(c.peerQueues, int(peers)),
		registration: c.registration, endMessage: c.endMessage, pages: c.pages, blockGroups: c.blockGroups, peers: c.peers,
	}
	if cfg.On() {
		e.fullPlan, e.ownNumbers = planAllPages(cfg.Geometry), EncodeGeometry(cfg.Geometry)
	}
	return e
}

// Step handles completions, landed pages and revocations.
func (c *Consumer) Step(e *flow.Env, ref kernel.Ref, ev effects.Event) {
	switch x := ev.(type) {
	case *effects.Replied:
		switch ref.Kind {
		case kindRegister:
			c.onRegistrationReplied(e, ref.Subject, x.Body)
		case kindWithdrawal:
			c.onWithdrawalReplied(e, ref.Subject, x.Body)
		case kindKeep:
			c.onKeepReplied(e, ref.Subject, x.Body, effects.OK)
		}
	case *effects.Unanswered:
		switch ref.Kind {
		case kindRegister:
			c.onRegistrationUnanswered(e, ref.Subject, x.Code)
		case kindWithdrawal:
			c.onWithdrawalUnanswered(e, ref.Subject)
		case kindKeep:
			c.onKeepReplied(e, ref.Subject, nil, x.Code)
		}
	case *effects.Landed:
		c.onLanded(e, ref.Subject, x)
	case *effects.Revoked:
		c.onRevoked(e, ref.Subject)
	default:
		kernel.PanicUnexpected("the consumer of registrations")
	}
}

// OnCommand handles a Register, an Expect or a NotNeeded. It returns false for other commands.
func (c *Consumer) OnCommand(e *flow.Env, x *effects.Command) bool {
	switch body := x.Body.(type) {
	case *Register:
		c.startReception(e, x.Ticket, body)
	case *Expect:
		c.startKeep(e, x.Ticket, body.Request, body.Transfer, body.Producers, body.Timeout, false)
	case *NotNeeded:
		c.startKeep(e, x.Ticket, body.Request, body.Transfer, body.Producers, body.Timeout, true)
	default:
		return false
	}
	return true
}

// OnTimer handles a deadline.
func (c *Consumer) OnTimer(e *flow.Env, ref kernel.Ref) {
	h := ref.Subject
	switch ref.Kind {
	case timerReception:
		c.onDeadline(e, h)
	case timerWithdrawal:
		p := c.parts.Get(h)
		p.withdrawalTimer = 0
		e.Links.CloseLane(&e.Env, p.peer, laneControl, p.withdrawalConn)
	case timerRegister:
		p := c.parts.Get(h)
		p.registrationTimer = 0
		e.Out.Mark(Marks.AnswerOverdue)
		e.Links.CloseLane(&e.Env, p.peer, laneRegistrations, p.registrationConn)
	case timerKeep:
		c.onKeepTimer(e, h)
	case timerKeepCommand:
		c.onKeepDeadline(e, h)
	}
}

// OnSignal handles a change of a peer: the queues of the peer are continued.
func (c *Consumer) OnSignal(e *flow.Env, ref kernel.Ref, s flow.Signal) {
	if s.Kind != flow.PeerChanged {
		kernel.PanicUnexpected("the consumer of registrations")
	}
	c.sendQueued(e, ref.Subject)
}

// AbortCommand ends a command early. It returns false if the outcome was delivered already.
func (c *Consumer) AbortCommand(e *flow.Env, ref kernel.Ref) bool {
	if ref.Kind == timerKeepCommand {
		c.finishKeep(e, ref.Subject, effects.Cancelled, nil)
		return true
	}
	if r := c.receptions.Get(ref.Subject); r.delivered {
		return false
	}
	c.failReception(e, ref.Subject, effects.Cancelled, effects.Why{})
	return true
}

// CountUnfinished returns the number of rows that a drain waits for.
func (c *Consumer) CountUnfinished(*flow.Env) int { return c.receptions.Len() + c.keeps.entries.Len() }

// Len returns the number of receptions.
func (c *Consumer) Len() int { return c.receptions.Len() }

// VisitTables reports the sizes of the tables.
func (c *Consumer) VisitTables(visit table.VisitFunc) {
	visit("receptions", c.receptions.Len(), table.Empty)
	visit("parts of receptions", c.parts.Len(), table.Empty)
	visit("requests expected", c.keeps.commands.Len(), table.Empty)
}

// SweepDrain ends the reception and the wish in a slot, for a drain. It reports whether there are more slots.
func (c *Consumer) SweepDrain(e *flow.Env, slot int32) (more bool) {
	h := c.receptions.At(slot)
	if r := c.receptions.Get(h); r != nil && !r.delivered {
		e.Work.SpendRows(len(r.pages))
		c.failReception(e, h, effects.Draining, *endReason(effects.Draining))
	}
	if r := c.receptions.Get(h); r != nil { // A drain does not wait for replies of peers.
		for _, ph := range r.parts {
			if p := c.parts.Get(ph); p != nil && p.reception == h && p.grant != 0 && !p.revoking {
				c.revokeGrant(e, p)
			}
		}
	}
	if h := c.keeps.commands.At(slot); c.keeps.commands.Get(h) != nil {
		c.finishKeep(e, h, effects.Draining, nil)
	}
	return slot < max(c.receptions.Slots(), c.keeps.commands.Slots())
}

// OnPeerLost handles the loss of a peer's link to this node's pages. On fenced planes the peer cannot write any more:
// the grants of the peer are revoked, and the receptions that the peer was to write end. On leased planes nothing
// happens, because the loss proves nothing there (M4).
func (c *Consumer) OnPeerLost(e *flow.Env, peer effects.Incarnation, _ bool) {
	if e.Cfg.Leased {
		return
	}
	e.Work.SpendLooks(int(c.parts.Slots()))
	for slot := range c.parts.Slots() {
		h := c.parts.At(slot)
		p := c.parts.Get(h)
		if p == nil || p.peerID != peer || p.grant == 0 || p.revoking {
			continue
		}
		e.Out.Mark(Marks.WriterLost)
		receptionHandle := p.reception
		c.revokeGrant(e, p)
		if !c.receptions.Get(receptionHandle).delivered {
			c.failReception(e, receptionHandle, effects.PeerLost, *flow.LinkLostReason())
		}
	}
}

// RowState returns the state of the subject of a Ref.
func (c *Consumer) RowState(_ *flow.Rooms, ref kernel.Ref) uint16 {
	switch ref.Kind {
	case kindRegister, kindWithdrawal, kindGrant, timerWithdrawal, timerRegister:
		if p := c.parts.Get(ref.Subject); p != nil {
			return 1 + uint16(p.phase)
		}
	case timerReception:
		if r := c.receptions.Get(ref.Subject); r != nil && r.delivered {
			return 1 + uint16(partPhaseCount)
		}
		return 2 + uint16(partPhaseCount)
	case kindKeep, timerKeep, timerKeepCommand:
		return 3 + uint16(partPhaseCount)
	}
	return 0
}

// ConsumerStateNames returns the names of the states.
func ConsumerStateNames() []string {
	return []string{
		"part over", "part linking", "part registering", "part withdrawing", "part idle", "reception ending",
		"reception open", "requests expected",
	}
}

var _ flow.Flow = (*Consumer)(nil)
