// Package landing keeps the grants under which chunks are stored into this rank's pages: write grants of peers that
// push, and the rank's own grants for the pages into which it reads (pull and peer-to-peer). It also plans, for each
// key of a batch, whether the key needs a page.
//
// The package knows no messages. A caller (a push target, a puller, a requester) decodes a request, asks for a
// [Plan], checks that the plan fits the pool, and calls [Landings.BeginGrant]. The caller then reports what the
// caller learns from the driver or from the peer: pages that landed, a commit, an abort, a deadline, a revocation that
// is complete.
//
// A caller may rely on the following:
//
//   - No chunk is readable before its page is whole (rule M7). The exception is [Landings.TrustPages] (rule M5).
//   - A page that was granted is free again only when its writer is proven quiet: see end.go (rules M1 and M4).
//   - What a commit was answered once is answered again when the commit is repeated (rule M6).
//
// Example: a sender asks for pages for keys A and B, and A is ready already. PlanKeys finds that only B needs a page,
// and BeginGrant grants page 7. The sender stores B into page 7, and the driver of a fenced plane reports this;
// OnLanded turns the grant on page 7 into a reference of the store's entry for B, and ends the grant. Had the lease run
// out first, ExpireGrant would have revoked the grant, and page 7 would be in quarantine until OnRevoked is called.
package landing

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/kernel/replies"
	"github.com/kvferry/kvferry/fsm/rank/memory"
	"github.com/kvferry/kvferry/fsm/rank/memory/bundle"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/fsm/table"
)

// A Landing is a grant together with a fill for each of the granted pages. The grant belongs to a sender that pushes,
// or to this rank, which reads from an offer. A landing is open until all pages have landed or until the grant is
// revoked. The pages of a revoked landing are in quarantine until nothing can touch these pages any more, which must be
// proven.
type Landing struct {
	live bool `snap:"life"`
	// Revoking reports that the grant was revoked. Invariant: while it is true, the pages that have not landed are in
	// quarantine and belong to nobody (M1).
	Revoking bool
	// Verifying reports that the driver compares pages with their checksums (verify.go). Invariant: meanwhile the grant
	// does not end, and no Revoke of the grant is outstanding.
	Verifying bool
	// HeldPages is the number of first pages that a peer has stored and whose checksums are not known yet.
	HeldPages uint32
	// CommitRequest is the latest commit of the grant, which is answered when the pages have been compared; 0: none.
	CommitRequest effects.Request `snap:"skip"`
	ID            effects.GrantID
	Purpose
	fills     []store.Entry    // by the page's position in the grant; for layers: their places in bundles
	Reply     []byte           // the reply that was sent, for a retry of the same operation
	lossCount kernel.LossCount // the class's count of losses when the grant was made
	timer     kernel.TimerID   `snap:"set"`
	// grantedAt, bytes and pagesLost are for the report of a traced request.
	grantedAt effects.Time `snap:"skip"`
	bytes     uint64       `snap:"skip"`
	pagesLost bool         `snap:"skip"`
}

// A Purpose describes the purpose of a grant: the owner, the writer, and the duration.
type Purpose struct {
	Owner       kernel.Owner        // the component that is notified of pages that land and of the deadline
	Class       int                 // the fairness class that the pages count for
	Peer        effects.Incarnation // the writer's incarnation; zero for a vanilla sender
	Operation   uint64              // the peer's number of the operation, by which a retry is recognized; 0: none
	Request     uint64              // hash of the request id
	ForLayers   bool                // the pages are for layers, in places of bundles
	ContentHash uint64              // hash of the keys, in order, and of the token count of the last chunk
	CommitBy    effects.Time        // on a leased plane, a commit that arrives later is refused
	Expires     effects.Time        // when the grant expires
	// Trace is what the writer's request carries of its trace, and ArrivedAt is when the request arrived. Nothing is decided
	// by the two.
	Trace     effects.TraceContext `snap:"skip"`
	ArrivedAt effects.Time         `snap:"skip"`
}

// Landings is the table of all grants to store into this rank's pages, indexed by the grant's slot.
type Landings struct {
	cfg Config `snap:"share"`
	// rows grows to the largest number of simultaneous grants. No pointer to a row may be kept across BeginGrant.
	rows           []Landing
	byOperation    table.Index // the handles are slots (see Handle)
	losses         kernel.Losses
	commitRecords  replies.Records // replay records of committed grants
	carriedRecords replies.Records // replay records of operations whose chunks came with the allocation request
	Bundles        bundle.Bundles
	planBuf        Plan              `snap:"scratch"`
	pageBuf        []effects.Page    `snap:"scratch"`
	grantBuf       []effects.GrantID `snap:"scratch"`
}

// Config is the configuration of Landings.
type Config struct {
	Leased     bool             // the plane is leased: the driver cannot observe what peers store
	Verifies   bool             // pages are compared with the checksums of their chunks before they are readable
	GrantsMax  int              // limit of simultaneous grants of the rank
	ClaimTTL   effects.Duration // also how long a commit is remembered
	PageBytes  uint64
	TokenBytes uint64 // bytes of one token in a page
	KeyBytes   int    // limit of the length of a key
	Bundles    bundle.Config
}

// Recycle returns an empty table that reuses the memory of l. The caller must not use l afterwards.
func (l *Landings) Recycle(cfg Config, classes int) Landings {
	clear(l.rows)
	return Landings{
		cfg: cfg, rows: l.rows[:0], byOperation: l.byOperation.Recycle(), losses: l.losses.Recycle(classes),
		commitRecords: l.commitRecords.Recycle(cfg.GrantsMax, classes), carriedRecords: l.carriedRecords.Recycle(cfg.GrantsMax, classes),
		Bundles: l.Bundles.Recycle(cfg.Bundles, classes),
		planBuf: l.planBuf, pageBuf: l.pageBuf, grantBuf: l.grantBuf[:0],
	}
}

// MayAddGrant reports whether a class may have another grant now.
func (l *Landings) MayAddGrant(v *env.Env, class int) bool {
	return v.Pools.CountGrants() < l.cfg.GrantsMax && v.Pools.MayAddGrant(class)
}

// GrantsMax returns the limit of simultaneous grants.
func (l *Landings) GrantsMax() int { return l.cfg.GrantsMax }

// HasRoom reports whether the tables have room for another grant and for the fills of so many keys.
func (l *Landings) HasRoom(v *env.Env, s *store.Store, keys int) bool {
	return v.Pools.CountGrants() < l.cfg.GrantsMax && s.HasRoom(keys)
}

// BeginGrant grants the pages of the pool that a plan needs, and records the purpose of the grant. The caller has
// checked that the plan fits. BeginGrant returns the landing and the granted pages.
//
// Invariant: from here on the pages become free only through the end of the grant (M1).
func (l *Landings) BeginGrant(v *env.Env, p *Plan, pool *memory.Pool, purpose Purpose) (*Landing, []effects.Page) {
	id, pages := v.Pools.GrantPages(pool, purpose.Class, p.Lengths, p.Sums, kernel.Ref{Owner: purpose.Owner})
	v.Pools.SetGrantTenant(id, p.Tenant)
	slot := int(memory.SlotOf(id))
	for slot >= len(l.rows) {
		l.rows = append(l.rows, Landing{})
	}
	x := &l.rows[slot]
	*x = Landing{
		live: true, ID: id, Purpose: purpose, fills: x.fills[:0], Reply: x.Reply[:0], lossCount: l.losses.CountFor(purpose.Class),
		grantedAt: v.Now,
	}
	for i := range pages {
		x.bytes += uint64(pages[i].Length)
	}
	v.Timers.Set(&x.timer, x.Expires, kernel.Ref{Owner: purpose.Owner, Subject: slotHandle(id)})
	if x.Operation != 0 {
		l.byOperation.Add(table.Hash(x.Operation, x.Peer[:]), slotHandle(id))
	}
	for i := range p.Keys {
		if at := &p.Keys[i]; at.NeedsPage() {
			x.fills = append(x.fills, at.entry)
		}
	}
	if x.ForLayers {
		l.recordGrant(v, x)
	}
	return x, pages
}

// IsOwnRead reports whether the grant is this rank's own: the rank stores into the pages itself, and no peer does.
func (x *Landing) IsOwnRead() bool {
	return x.Owner == kernel.OwnerPullTarget || x.Owner == kernel.OwnerP2PRequester
}

// PageCount returns the number of granted pages, at least 1. PageCount measures the work that the landing causes.
func (x *Landing) PageCount() int { return max(1, len(x.fills)) }

// Handle returns the handle of the landing. The handle is unique among the landings that are live now.
func (x *Landing) Handle() table.Handle { return slotHandle(x.ID) }

func slotHandle(id effects.GrantID) table.Handle { return table.Handle(memory.SlotOf(id) + 1) }

// Find returns the landing of a grant, or nil if the grant has ended. The whole id is compared, so a former grant of
// the same slot is not found (M2).
func (l *Landings) Find(id effects.GrantID) *Landing {
	slot := memory.SlotOf(id)
	if int(slot) >= len(l.rows) || !l.rows[slot].live || l.rows[slot].ID != id {
		return nil
	}
	return &l.rows[slot]
}

// FindOperation returns the live landing of an operation that the peer requests again, or nil if there is none. If the
// writer was lost since the grant was made, FindOperation revokes the grant first, so that the writer does not receive
// the grant again.
func (l *Landings) FindOperation(v *env.Env, peer effects.Incarnation, operation uint64) *Landing {
	for p := l.byOperation.Find(table.Hash(operation, peer[:])); p.Found(); p = l.byOperation.Next(p) {
		if x := &l.rows[p.Handle().Slot()]; x.Peer == peer && x.Operation == operation {
			l.RevokeCondemned(v, x)
			return x
		}
	}
	return nil
}

// At returns the landing at a slot. The caller has a completion that belongs to the landing.
func (l *Landings) At(slot int32) *Landing { return &l.rows[slot] }

// EachLanding calls visit with every landing, in the order of the slots.
func (l *Landings) EachLanding(visit func(*Landing)) {
	for i := range l.rows {
		if x := &l.rows[i]; x.live {
			visit(x)
		}
	}
}

// GrantedAt returns when the pages were granted.
func (x *Landing) GrantedAt() effects.Time { return x.grantedAt }

// OnTimer returns the landing at a slot after the deadline of the landing has passed.
func (l *Landings) OnTimer(v *env.Env, slot int32) *Landing {
	x := &l.rows[slot]
	x.timer = 0
	v.Out.Mark(Marks.GrantExpired)
	return x
}

// StopDeadline stops the deadline of a landing after its end was requested.
func (l *Landings) StopDeadline(v *env.Env, x *Landing) { v.Timers.Stop(&x.timer) }

// ActiveAt returns the landing at a slot if the landing is live and is not being revoked; otherwise nil. It is for
// sweeps in the order of slots.
func (l *Landings) ActiveAt(slot int) *Landing {
	if x := &l.rows[slot]; x.live && !x.Revoking {
		return x
	}
	return nil
}

// Slots returns the end of the range of slots for At and ActiveAt.
func (l *Landings) Slots() int { return len(l.rows) }

// CountOperations returns the number of live grants that have an operation number, by which a retry is recognized.
func (l *Landings) CountOperations() int { return l.byOperation.Len() }

// OnLanded handles a report of a fenced plane that pages are whole. OnLanded makes the pages readable, and then
// confirms the transfer to the sender, so that the confirmation says that the chunks are readable, and not only that
// they were stored. The confirmation says Withdrawn if a page was not taken, because OK would claim that all pages were
// taken. Pages of the grant that the push left out are revoked.
//
// claim says whether a request may still come for the chunks; only then are they claimed.
func (l *Landings) OnLanded(v *env.Env, s *store.Store, x *Landing, ev *effects.Landed, claim bool) {
	code := effects.OK
	if !ev.Complete {
		v.Out.Mark(Marks.LandedPartly)
		code = effects.Faulted
	}
	if ev.Corrupt > 0 {
		v.Out.Mark(Marks.LandedCorrupt)
		code = effects.Corrupt
	}
	for _, page := range ev.Pages {
		if !l.LandPage(v, s, x, page, claim) {
			// OK would claim that every page was taken.
			code = effects.Withdrawn
		}
	}
	v.Out.Confirm(ev.Landing, code)
	switch {
	case v.Pools.CountOpenPages(x.ID) == 0 && !x.Revoking:
		l.EndGrant(v, s, x)
	case !x.Revoking:
		// The push is over, and so is the grant on the pages that the push left out.
		l.RevokeGrant(v, x)
	}
}

// LandAll makes all pages readable that are still under the grant. LandAll reports whether every page was taken. The
// caller has proof that the writer has stored all of them, for example a commit.
func (l *Landings) LandAll(v *env.Env, s *store.Store, x *Landing, claim bool) (landedAll bool) {
	// The list of the grant shrinks while pages land, so iterate over a copy.
	l.pageBuf, landedAll = append(l.pageBuf[:0], v.Pools.PagesOf(x.ID)...), true
	for _, page := range l.pageBuf {
		landedAll = l.LandPage(v, s, x, page, claim) && landedAll
	}
	return landedAll
}

// LandCarried makes readable all pages into which the driver copied the chunks that came with the allocation request,
// and ends the landing. LandCarried records the operation, so that a retry is answered in the same way (see
// FindCarried, and rule M4).
func (l *Landings) LandCarried(v *env.Env, s *store.Store, x *Landing, claim bool) {
	v.Work.SpendRows(x.PageCount())
	l.LandAll(v, s, x, claim)
	if x.Operation != 0 {
		l.carriedRecords.Add(replies.Record{
			Class: x.Class, Peer: x.Peer, Operation: x.Operation, AllAttempts: true, ContentHash: x.ContentHash, SentAt: v.Now,
			Expires: v.Now.Add(l.cfg.ClaimTTL),
		})
	}
	l.EndGrant(v, s, x)
}

// FindCarried reports whether the chunks of an operation were taken with its allocation request, and returns the hash
// of what the request named then ([Purpose.ContentHash]).
func (l *Landings) FindCarried(peer effects.Incarnation, operation uint64) (contentHash uint64, found bool) {
	x := l.carriedRecords.Find(peer, operation, 0)
	if x == nil {
		return 0, false
	}
	return x.ContentHash, true
}

// LandFirst makes the first pages of the grant readable. The writer has said that these pages are whole. The writer's
// word is believed only if MayTake; otherwise LandFirst does nothing.
func (l *Landings) LandFirst(v *env.Env, s *store.Store, x *Landing, pages uint32, claim bool) {
	if !l.MayTake(v, x, pages) {
		v.Out.Mark(Marks.CommitLate)
		return
	}
	l.pageBuf = append(l.pageBuf[:0], v.Pools.PagesOf(x.ID)[:pages]...)
	for _, page := range l.pageBuf {
		l.LandPage(v, s, x, page, claim)
	}
}

// LandPage makes one page readable, and reports whether the page was taken. LandPage returns false if the page is not
// under the grant any more, or if the bundle of the layer has ended. claim says whether the chunk is claimed for its
// request.
//
// Invariant: the page's grant becomes a reference in one step, so the page is never free in between, and never readable
// before it is whole (M1, M7). If another fill of the same key has landed first, the reference is dropped at once and
// the page becomes free.
func (l *Landings) LandPage(v *env.Env, s *store.Store, x *Landing, page effects.Page, claim bool) bool {
	position, ok := v.Pools.LandPage(x.ID, page)
	if !ok {
		v.Out.Mark(Marks.LandedLate)
		return false
	}
	// The granted length is the length of the chunk; a plane may know only the page.
	page = v.Pools.PagesOf(x.ID)[position]
	h := x.fills[position]
	if x.ForLayers {
		if stored := l.Bundles.TakePage(v, s, h, page, claim); !stored {
			v.Pools.PoolOf(page).DropRef(page)
			return false
		}
		return true
	}
	stored := s.EndFill(h, page, true)
	if !stored {
		v.Out.Mark(Marks.FillLostRace)
		v.Pools.PoolOf(page).DropRef(page)
	}
	hash := s.HashOf(h)
	if claim {
		s.ClaimEntry(h, x.Class, x.Request, v)
	}
	s.DropUnused(h, v)
	if stored {
		v.Out.Observe(effects.Observe{Fact: effects.FactReady, ID: hash, Peer: x.Peer})
	}
	return true
}

// TrustPages makes the chunks of a vanilla sender readable, although nothing will ever report that they are whole (rule
// M5: trust_uncommitted, which is exempt from S1 by name). The grant stays in force beside the reference, so that the
// pages are not reused early.
func (l *Landings) TrustPages(v *env.Env, s *store.Store, x *Landing) {
	v.Out.Mark(Marks.Trusted)
	for position, page := range v.Pools.PagesOf(x.ID) {
		v.Pools.PoolOf(page).AddRef(page)
		h := x.fills[position]
		if !s.TrustFill(h, page) {
			v.Pools.PoolOf(page).DropRef(page)
			continue
		}
		s.ClaimEntry(h, x.Class, x.Request, v)
	}
}

// RefuseUnknown refuses the confirmation of pages that landed under a grant that this package does not know.
func RefuseUnknown(v *env.Env, ev *effects.Landed) {
	v.Out.Mark(Marks.LandedUnknown)
	v.Out.Confirm(ev.Landing, effects.Withdrawn)
}

// RecountShares counts the incomplete chunks and the replay records of each class again.
func (l *Landings) RecountShares(r *table.Recount) {
	l.Bundles.RecountShares(r)
	l.commitRecords.RecountShares(r, "records of commits")
	l.carriedRecords.RecountShares(r, "records of carried chunks")
}
