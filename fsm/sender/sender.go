// Package sender hands batches of chunks to receivers. It reserves pages for the engine. To push, it
// asks the receiver for pages, moves the bytes in one batched write and makes sure that they count;
// to be pulled from, it lends its own pages, or copies of them, says where they are, and waits until they were read. It tells
// the proxy when a request's last batch has ended, however it ended.
package sender

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/engine"
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
	InLine         bool   // reservations wait in one line with peers' requests
	Window         uint16 // requests in flight on one alloc lane, where the peer has as many; 0 is 1
	Wire           protocol.Limits
}

// Sender is the room: what an engine gives commands to, and the two flows of its puts, of which a rank has one.
type Sender struct {
	shared
	reserves   engine.Reserves
	parts      parts
	operation  uint64 // of the last put
	tokenBytes uint64 // of a page

	push pushSource
	pull pullSource
}

// New returns the room. seed is a secret of this rank.
func New(cfg Config, seed uint64) Sender {
	s := Sender{
		shared: shared{
			cfg: cfg, tickets: engine.NewTickets(cfg.PutsMax + cfg.ReservesMax),
			requests: engine.NewRequests(engine.RequestsConfig{
				Max: cfg.RequestsMax, TTL: cfg.RequestTTL, Silent: cfg.Proxy.Host == "",
				Owner: timerRef(timerRequest, 0), Seed: seed,
			}),
			proxy: newProxy(&cfg), breakers: link.NewBreakers(cfg.BreakerTTL, cfg.PeersMax, seed),
		},
		reserves: engine.NewReserves(engine.ReservesConfig{
			Max: cfg.ReservesMax, Pages: cfg.BatchMax, PageBytes: uint32(cfg.PageBytes), Patience: cfg.ReserveTimeout,
			Owner: timerRef(timerReserve, 0), InLine: cfg.InLine,
		}),
		tokenBytes: cfg.Layout.TokenBytes(),
	}
	if cfg.Pull {
		s.pull = newPullSource(&cfg, seed)
	} else {
		s.push = newPushSource(&cfg, seed)
	}
	return s
}

// Kinds of this room's completions: first those of puts that push, then those of puts that are pulled, then the
// proxy's.
const (
	kindAsk uint8 = iota + 1
	kindTransfer
	kindCommit
	kindCopy
	kindOffer
	kindWithdraw
	kindOpenProxy
	kindTell
)

// Kinds of its deadlines.
const (
	timerPush       uint8 = iota + 1 // when a put must have ended, or its last errand is given up
	timerPushAnswer                  // when a peer's answer is overdue
	timerPull
	timerPullAnswer
	timerLease   // when a lease is over, and an offer with it
	timerReserve // when a waiting Reserve gives up
	timerRequest // when a request is forgotten
	timerProxy   // when to try the proxy again
)

// What a ticket stands for.
const (
	ticketPush uint8 = iota + 1
	ticketPull
	ticketReserve = timerReserve // as its deadlines say
)

func kindRef(kind uint8, h table.Handle) kernel.Ref {
	return kernel.Ref{Owner: kernel.OwnerSender, Kind: kind, Subject: h}
}

func ticketRef(kind uint8, h table.Handle) kernel.Ref { return kindRef(kind, h) }

func timerRef(kind uint8, h table.Handle) kernel.Ref { return kindRef(kind, h) }

// Puts, Reserves and Requests count what is in the tables.
func (s *Sender) Puts() int { return s.push.puts.Len() + s.pull.puts.Len() }

// Line are the reservations: the first stands in the line of peers' requests, where there is one.
func (s *Sender) Line() *engine.Reserves { return &s.reserves }

// Reserves is the number of reservations, waiting ones included.
func (s *Sender) Reserves() int { return s.reserves.Len() }

// Requests is the number of requests remembered, told ones included.
func (s *Sender) Requests() int { return s.requests.Len() }

// Tombstones is the number of requests that were told and are only remembered.
func (s *Sender) Tombstones() int { return s.requests.Told() }

// Left counts what a drain still waits for.
func (s *Sender) Left(l *link.Links) int {
	return s.push.left(l) + s.pull.left(l) + s.reserves.Len() + s.proxy.left(&s.requests)
}

// Drain refuses new work from now on. Open puts go on until their own deadlines.
func (s *Sender) Drain(v *env.Env) {
	s.draining = true
	s.reserves.FailAll(v, &s.tickets, effects.Draining)
}

// OnReserve handles a Reserve.
func (s *Sender) OnReserve(v *env.Env, t effects.Ticket, c *Reserve) {
	if s.draining {
		engine.TurnDown(v, t, effects.Draining, &effects.Why{})
		return
	}
	s.reserves.Add(v, &s.tickets, t, c)
}

// OnRelease handles a Release.
func (s *Sender) OnRelease(v *env.Env, t effects.Ticket, c *Release) {
	s.reserves.Release(v, &s.tickets, t, c)
}

// Pump moves on what waits for a peer.
func (s *Sender) Pump(v *env.Env, l *link.Links, peer table.Handle) {
	e := step{*v, &s.shared, l}
	if s.cfg.Pull {
		s.pull.pump(&e, peer)
	} else {
		s.push.pump(&e, peer)
	}
}

// Admit gives memory to those who wait for it: pages to reserves, host pages to puts that are to be copied, and room
// below the high-water mark to those that are to be offered.
func (s *Sender) Admit(v *env.Env, l *link.Links) {
	e := step{*v, &s.shared, l}
	s.reserves.Admit(v)
	s.pull.admitCopies(&e)
	s.pull.admitOffers(&e)
}

// Shifted says, once, that somebody left a line without having got what he waited for: who is behind him may get it.
func (s *Sender) Shifted() bool {
	was := s.pull.shifted
	s.pull.shifted = false
	return s.reserves.LeftLine() || was
}
