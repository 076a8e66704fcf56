// Package receiver grants pages to senders that push, reads the pages of senders that offer,
// and hands ready chunks to the engine. No reader ever sees a page before it is whole, and no page is
// used again before its writer is proven quiet.
package receiver

import (
	"math"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/pipeline"
	"github.com/kvferry/kvferry/fsm/store"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// Config is the part of the rank's configuration that the receiver needs.
type Config struct {
	Layout           protocol.Layout
	PageBytes        uint64
	Buffer           protocol.UUID
	Leased           bool
	Bearer           bool // the planes serve peers without our extensions
	Residual         effects.Duration
	ReplyForm        protocol.ReplyForm
	TrustUncommitted bool
	AllocTimeout     effects.Duration
	Lease            effects.Duration
	ClaimTTL         effects.Duration
	GetWaitMax       effects.Duration
	LeaseGuard       effects.Duration
	ReadTimeout      effects.Duration
	ReplyTimeout     effects.Duration
	FetchTimeout     effects.Duration
	LeadMin          effects.Duration
	AbandonTTL       effects.Duration // negative: what comes for an abandoned request is served
	AbandonsMax      uint32
	LoanMax          effects.Duration
	AddressesOnly    bool // senders say where they take words by address, not by name
	Delay            bool // offers are read when the engine fetches, not when they come
	OffersMax        uint32
	PlacesMax        uint32
	Pipeline         pipeline.Config
	BackoffMin       effects.Duration
	BackoffMax       effects.Duration
	PeersMax         uint32
	BatchMax         uint32
	WaitersMax       uint32
	WaitingBytes     uint64 // of requests and offers that wait
	GrantsMax        uint32
	GetsMax          uint32
	PagesMax         uint32 // of the pool
	Retention        store.Retention
	ClaimsMax        uint32 // beyond the first on each page
	EntriesMax       uint32
	OvertakesMax     uint32
	Wire             protocol.Limits
}

// Receiver is the room.
type Receiver struct {
	cfg   Config `snap:"share"`
	Store store.Store

	pending  pending
	busy     []uint32 `snap:"scratch"`
	landings landings
	reads    []reading // by the grant's slot

	gets gets

	abandons   abandons
	deferred   deferred
	fetches    fetches
	renewers   renewers
	notices    notices
	tombstones tombstones

	draining bool

	message protocol.AllocRequest     `snap:"scratch"`
	reply   protocol.AllocResponse    `snap:"scratch"`
	offer   protocol.PullReadyNotif   `snap:"scratch"`
	ack     protocol.PullReadyDoneAck `snap:"scratch"`
	done    protocol.PullDoneSignal   `snap:"scratch"`
	word    []byte                    `snap:"scratch"`
	pairs   []effects.Pair            `snap:"scratch"`
	already []int64                   `snap:"scratch"`

	withdrawn []protocol.PullID `snap:"scratch"`
	hashes    []uint64          `snap:"scratch"`
}

// New returns the room. seed is a secret of this rank.
func New(cfg Config, classes int, seed uint64) Receiver {
	return Receiver{
		cfg: cfg,
		Store: store.New(store.Config{
			Seed: seed, Entries: int(cfg.EntriesMax), Places: int(cfg.PlacesMax), Pages: int(cfg.PagesMax),
			Claims: int(cfg.ClaimsMax), Classes: classes, TTL: cfg.ClaimTTL, Retention: cfg.Retention,
		}),
		deferred: newDeferred(deferredConfig{
			offersMax: int(cfg.OffersMax), leadMin: cfg.LeadMin,
		}, classes),
		fetches: newFetches(cfg.Pipeline, cfg.FetchTimeout),
		renewers: newRenewers(renewersConfig{
			replyTimeout: cfg.ReplyTimeout, backoffMin: cfg.BackoffMin, backoffMax: cfg.BackoffMax,
			addressesOnly: cfg.AddressesOnly, wire: cfg.Wire,
		}, classes),
		pending: newPending(pendingConfig{
			places: int(cfg.WaitersMax), bytes: int(min(cfg.WaitingBytes, math.MaxInt)), bypassMax: cfg.OvertakesMax,
		}, classes),
		landings: newLandings(landingsConfig{
			leased: cfg.Leased, grantsMax: int(cfg.GrantsMax), claimTTL: cfg.ClaimTTL, pageBytes: cfg.PageBytes,
			tokenBytes: cfg.Layout.TokenBytes(),
		}, classes),
		notices: newNotices(noticesConfig{
			seed: seed, backoffMin: cfg.BackoffMin, backoffMax: cfg.BackoffMax,
			peers: int(cfg.PeersMax), words: int(cfg.GrantsMax + cfg.OffersMax),
		}, classes),
		abandons:   newAbandons(cfg.AbandonsMax),
		tombstones: newTombstones(int(cfg.GrantsMax+cfg.OffersMax), classes),
		gets:       newGets(int(cfg.GetsMax), cfg.GetWaitMax),
	}
}

// Kinds of this room's deadlines.
const (
	timerAsk   uint8 = 1 // when a waiting request for pages is refused
	timerGrant uint8 = 2 // when a grant ends
	timerGet   uint8 = 3 // when a waiting Get takes what there is
	timerClaim uint8 = 4 // when the oldest claim on an entry ends
	timerPost  uint8 = 5 // when to try a sender's done address again
	timerOffer uint8 = 6 // when an offer cannot be read any more
	timerFetch uint8 = 7 // when a waiting Fetch gives up
	timerRenew uint8 = 8 // when a renewal's answer is overdue, or when to ask again

	kindRead     uint8 = 1
	kindOpenPost uint8 = 2
	kindPost     uint8 = 3

	kindOpenRenew uint8 = 4
	kindRenew     uint8 = 5

	kindLanding uint8 = 6 // of a grant: a peer writes
	kindReading uint8 = 7 // of a grant: we read
)

// grantRef is the owner of a grant, whose batch lies by the slot of its id.
func grantRef(kind uint8) kernel.Ref { return kernel.Ref{Owner: kernel.OwnerReceiver, Kind: kind} }

func timerRef(kind uint8, h table.Handle) kernel.Ref {
	return kernel.Ref{Owner: kernel.OwnerReceiver, Kind: kind, Subject: h}
}

// claimRef is the deadline of a claim, whose subject the store fills in.
//
//kvferry:table
var claimRef = kernel.Ref{Owner: kernel.OwnerReceiver, Kind: timerClaim}

// Busy counts what is kept for each class beside its pages: while there is any the class stays its peer's.
func (r *Receiver) Busy() []uint32 {
	r.busy = r.busy[:0]
	for class := range r.pending.classes() {
		offers, _ := r.deferred.countOf(class)
		r.busy = append(r.busy, uint32(r.pending.of(class)+offers))
	}
	return r.busy
}

// Left counts what a drain still waits for.
func (r *Receiver) Left(v *env.Env) int {
	return r.pending.len() + r.gets.len() + v.Pools.Grants() + r.notices.left() +
		r.fetches.left() + r.deferred.len()
}

// OnTimer handles this room's deadlines.
func (r *Receiver) OnTimer(v *env.Env, ref kernel.Ref) {
	switch ref.Kind {
	case timerAsk:
		q := r.pending.get(ref.Subject)
		q.timer = 0
		v.Out.Mark(MarkAskExpired)
		if q.linking {
			r.refuseAsk(v, ref.Subject, effects.Unreachable, &effects.Why{
				Stage: effects.StagePlane, Field: "pd_alloc_fail_backoff_ttl", Ours: r.cfg.AllocTimeout.String() + " at the most",
				Theirs: "no connection to its pages yet",
			})
			return
		}
		r.refuseAsk(v, ref.Subject, effects.NoMemory, noPages(v, int(q.keys)))
	case timerGrant:
		r.onGrantEnds(v, ref.Subject.Slot())
	case timerGet:
		r.gets.due(v, &r.Store, ref.Subject)
	case timerOffer:
		r.onOfferTimer(v, ref.Subject)
	case timerRenew:
		r.renewers.due(v, int(ref.Subject))
		r.renew(v, int(ref.Subject))
	case timerFetch:
		r.fetches.overdue(v, &r.Store, &r.deferred, ref.Subject)
		r.tellEnded(v)
	case timerPost:
		r.notices.due(v, ref.Subject)
	case timerClaim:
		hash := r.Store.HashOf(ref.Subject)
		if n := r.Store.Expire(ref.Subject, v, claimRef); n > 0 {
			v.Out.Mark(MarkClaimExpired)
			v.Out.Observe(effects.Observe{Fact: effects.FactLapsed, Count: n, ID: hash})
		}
	}
}

// Drain refuses new work, answers who waits, takes grants back and drops what no
// engine will come for.
func (r *Receiver) Drain(v *env.Env) {
	r.draining = true
	for class := range r.pending.classes() {
		for h := r.pending.first(class); h != 0; h = r.pending.first(class) {
			r.refuseAsk(v, h, effects.Draining, ended(effects.Draining))
		}
	}
	r.gets.drain(v)
	r.fetches.drain(v, &r.Store, &r.deferred)
	r.tellEnded(v)
	for slot := range r.deferred.slots() {
		if h, _ := r.deferred.at(slot); h != 0 {
			r.drop(v, h, effects.Draining)
		}
	}
	for slot := range r.landings.slots() {
		if x := r.landings.standing(slot); x != nil {
			r.takeBack(v, x, effects.Draining)
		}
	}
	r.Store.DropAll(v, claimRef)
}

// OnOpened handles the completion of an Open of this room.
func (r *Receiver) OnOpened(v *env.Env, ref kernel.Ref, ev *effects.Opened) {
	if ref.Kind == kindOpenRenew {
		r.onRenewOpened(v, ref, ev)
		return
	}
	r.notices.opened(v, ref.Subject, ev)
}

// OnSendDone handles the completion of a notice.
func (r *Receiver) OnSendDone(v *env.Env, ref kernel.Ref, code effects.Code) {
	r.notices.sent(v, ref.Subject, code)
}
