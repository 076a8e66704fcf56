// Package sender hands batches of chunks to receivers. It reserves pages for the engine. To push, it
// asks the receiver for pages, moves the bytes in one batched write and makes sure that they count;
// to be pulled from, it lends its own pages, or copies of them, says where they are, and waits until they were read. It tells
// the proxy when a request's last batch has ended, however it ended.
package sender

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/draw"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/link"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// Config is the part of the rank's configuration that the sender needs.
type Config struct {
	Layout         protocol.Layout
	PageBytes      uint64
	Leased         bool
	Proxy          effects.Addr
	Rank           uint32
	PutTimeout     effects.Duration
	RequestTTL     effects.Duration
	ReserveTimeout effects.Duration
	AllocTimeout   effects.Duration
	ReplyTimeout   effects.Duration
	Lease          effects.Duration // assumed of receivers that state none
	LeaseGuard     effects.Duration
	BackoffMin     effects.Duration
	BackoffMax     effects.Duration
	BreakerTTL     effects.Duration // 0: no breaker
	Pull           bool             // receivers read, we do not write
	PullTTL        effects.Duration // how long an offer stands
	HighWater      uint32           // most pages that are lent at a time; with Offload, that are taken for it
	Offload        bool             // with Pull: chunks are copied from env.Engine to env.Pool, and lent there
	Buffer         protocol.UUID    // of the pool
	SenderID       []byte           // LMCache's name for us in offers
	DoneURL        []byte           // where receivers tell that they have read
	RenewURL       []byte           // where they ask for more time; empty: nowhere
	LoanMax        effects.Duration // how long a lease lives at the most, renewals included
	BatchMax       uint32
	PutsMax        uint32
	RequestsMax    uint32
	ReservesMax    uint32
	RequestIDMax   uint32
	PeersMax       uint32
	Wire           protocol.Limits
}

// attemptsMax is how often an AllocRequest is sent before its Put fails.
const attemptsMax = 3

// Sender is the room.
type Sender struct {
	cfg        Config `snap:"share"`
	tokenBytes uint64 // of a page
	seed       uint64

	tickets   tickets `snap:"skip"` // as the rows say
	puts      table.Slab[put]
	parts     parts
	operation uint64
	byPull    table.Index // of puts that are pulled
	ids       draw.Source
	queues    []queues // by the slot of the link's peer
	// hungry are the peers whose first put waits until enough of what was lent is back, in order.
	hungry   []table.Handle
	short    table.List // puts that wait for host pages, oldest first
	breakers breakers

	reserves reserves
	shifted  bool // somebody left a queue for host pages or for room to lend, without either

	requests requests
	proxy    proxy

	draining bool

	ask   protocol.AllocRequest     `snap:"scratch"`
	reply protocol.AllocResponse    `snap:"scratch"`
	offer protocol.PullReadyNotif   `snap:"scratch"`
	ack   protocol.PullReadyDoneAck `snap:"scratch"`
	done  protocol.PullDoneSignal   `snap:"scratch"`

	pairs []effects.Pair `snap:"scratch"`
	// byPage finds them by where they go, while they are made.
	byPage table.Index
	moves  []effects.CopyPair
}

// queues are the puts of one peer that wait for one of its lanes.
type queues struct {
	alloc  table.List
	commit table.List
	hungry bool // it is one of the hungry
}

// New returns the room. seed is a secret of this rank.
func New(cfg Config, seed uint64) Sender {
	return Sender{
		cfg: cfg, tokenBytes: cfg.Layout.TokenBytes(), seed: seed,
		tickets:  newTickets(cfg.PutsMax + cfg.ReservesMax),
		puts:     table.NewSlab[put](int(cfg.PutsMax)),
		queues:   make([]queues, cfg.PeersMax),
		breakers: newBreakers(cfg.PeersMax),
		ids:      draw.New(seed),
		reserves: newReserves(&cfg),
		requests: newRequests(&cfg, seed), proxy: newProxy(&cfg),
	}
}

// Kinds of this room's completions and deadlines.
const (
	kindAsk uint8 = iota + 1
	kindTransfer
	kindCommit
	kindOffer
	kindOpenProxy
	kindTell
	kindCopy

	timerPut     uint8 = 1 // when a put must have ended, or its last errand is given up
	timerAnswer  uint8 = 2 // when a peer's answer is overdue
	timerReserve uint8 = 3 // when a waiting Reserve gives up
	timerRequest uint8 = 4 // when a request is forgotten
	timerProxy   uint8 = 5 // when to try the proxy again
	timerLease   uint8 = 6 // when a lease is over
)

// Puts, Reserves and Requests count what is in the tables.
func (s *Sender) Puts() int { return s.puts.Len() }

// Reserves is the number of reservations, waiting ones included.
func (s *Sender) Reserves() int { return s.reserves.slab.Len() }

// Requests is the number of requests remembered, told ones included.
func (s *Sender) Requests() int { return s.requests.slab.Len() }

// Tombstones is the number of requests that were told and are only remembered.
func (s *Sender) Tombstones() int { return s.requests.told.Len() }

// Left counts what a drain still waits for. A put that has its memory back and only has a word left for a peer that
// is out of reach is none of it: the peer's lease says the same, in time.
func (s *Sender) Left(l *link.Links) int {
	left := s.puts.Len() + s.reserves.slab.Len() + s.proxy.left(&s.requests)
	for slot := range s.puts.Slots() {
		h := s.puts.At(slot)
		if h == 0 {
			continue
		}
		if p := s.puts.Get(h); p.delivered && p.phase == committing && !p.held && !p.lease.Out() {
			if state, _ := l.Outbound(p.peer).State(); state != link.Ready {
				left--
			}
		}
	}
	return left
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Lease is that of the put that a grant is for.
func (s *Sender) Lease(ref kernel.Ref) *Lease { return &s.puts.Get(ref.Subject).lease }

// Drain refuses new work from now on. Open puts go on until their own deadlines.
func (s *Sender) Drain(v *env.Env) {
	s.draining = true
	s.reserves.failAll(v, &s.tickets, effects.Draining)
}

// OnReserve handles a Reserve.
func (s *Sender) OnReserve(v *env.Env, t effects.Ticket, c *Reserve) {
	if s.draining {
		turnDown(v, t, effects.Draining, &effects.Why{})
		return
	}
	s.reserves.add(v, &s.tickets, t, c)
}

// OnRelease handles a Release.
func (s *Sender) OnRelease(v *env.Env, t effects.Ticket, c *Release) {
	s.reserves.release(v, &s.tickets, t, c)
}

// AdmitReserves gives pages to those who wait.
func (s *Sender) AdmitReserves(v *env.Env) { s.reserves.admit(v) }

// Shifted says, once, that somebody left a queue without having got what he waited for: who is behind him may get it.
func (s *Sender) Shifted() bool {
	was := s.shifted || s.reserves.shifted
	s.shifted, s.reserves.shifted = false, false
	return was
}

// OnProxyOpened handles the completion of the Open of the proxy's connection.
func (s *Sender) OnProxyOpened(v *env.Env, ev *effects.Opened) { s.proxy.onOpened(v, &s.requests, ev) }

// OnSendDone handles the completion of a notification.
func (s *Sender) OnSendDone(v *env.Env, ref kernel.Ref, code effects.Code) {
	s.proxy.onSendDone(v, &s.requests, ref.Subject, code)
}

// OnConnLost handles the loss of a connection that may be the proxy's.
func (s *Sender) OnConnLost(v *env.Env, conn effects.Conn) { s.proxy.onConnLost(v, &s.requests, conn) }

// OnTimer handles this room's deadlines.
func (s *Sender) OnTimer(v *env.Env, l *link.Links, ref kernel.Ref) {
	switch ref.Kind {
	case timerPut:
		s.puts.Get(ref.Subject).timer = 0
		s.onPutDeadline(v, l, ref.Subject)
	case timerAnswer:
		s.puts.Get(ref.Subject).answer = 0
		s.onAnswerOverdue(v, l, ref.Subject)
	case timerReserve:
		s.reserves.slab.Get(ref.Subject).timer = 0
		s.reserves.fail(v, &s.tickets, ref.Subject, effects.NoMemory)
	case timerRequest:
		s.requests.slab.Get(ref.Subject).timer = 0
		s.requests.forget(ref.Subject)
	case timerProxy:
		s.proxy.timer = 0
		s.proxy.maybeTell(v, &s.requests)
	case timerLease:
		s.onOfferOver(v, l, ref.Subject)
	}
}

// What a ticket stands for.
const (
	ticketPut uint8 = iota + 1
	ticketReserve
)

func ticketRef(kind uint8, h table.Handle) kernel.Ref {
	return kernel.Ref{Owner: kernel.OwnerSender, Kind: kind, Subject: h}
}

func timerRef(kind uint8, h table.Handle) kernel.Ref {
	return kernel.Ref{Owner: kernel.OwnerSender, Kind: kind, Subject: h}
}

// agree ends a command that asked for something that was done at once.
func agree(v *env.Env, t effects.Ticket) { v.Out.Deliver(effects.Deliver{Ticket: t}) }
