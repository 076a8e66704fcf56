// Package loan holds the read leases that this node has given to peers on prefixes of ready chunks. The flow that
// answers a lookup or a recall of a peer finds the prefix here and leases the pages. The package knows no messages.
//
// The pages of a loan are protected in three ways for the same time. A pin keeps the store from evicting the chunk, so
// that the next peer that asks finds the chunk. A read grant keeps the page from being written (rule M1 in
// docs/safety.md). A lease limits the time (rule M4).
//
// A caller may rely on the following:
//
//   - Without an arena, the pin, the grant and the lease begin in the same step and end in the same step.
//   - A retry of an operation gets the loan that the operation already has.
//   - No fairness class has more loans, or more pages under loans, than its share.
//
// Instead of leasing a prefix, a flow can keep its pages for a transfer of this node to the peer (HoldPrefix,
// ReleasePrefix).
//
// With an arena the chunks are copied first. The chunks are pinned until the copy has settled, and then only the copies
// are leased (copies.go).
//
// Example: a peer asks which chunks of a prompt this node has. FindPrefix finds that the first three are ready, and
// CanLend reports that the peer's class may have another loan. LendPrefix pins the three chunks and grants the pages to
// the peer until the lease ends. The reply is lost and the peer repeats the request: FindLoan returns the same loan,
// and the reply states the remaining time. After reading the pages the peer sends a done message. On a leased plane
// HandleDone ends the loan at once. On a fenced plane HandleDone requests a revocation, and the loan ends when
// OnRevoked receives the confirmation.
package loan

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/fsm/rank/peers/lease"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/table"
)

// Config is the configuration of Loans.
type Config struct {
	Owner    kernel.Owner     // the flow that owns the loans and receives their ends
	Kind     uint8            // kind of the flow's Refs that belong to loans
	LoansMax uint32           // limit of loans
	PagesMax uint32           // limit of pinned chunks of all loans
	TTL      effects.Duration // duration of a lease
	Leased   bool             // the plane is leased: the owner cannot observe what peers read
	// Page size in bytes; shorter chunks are not leased, because peers cannot be told their length; 0: all chunks are
	// leased.
	WholePageBytes uint32
	ArenaPages     uint32 // number of pages of the arena; 0: chunks are leased without a copy
}

// Loans is the table of the loans of one flow.
type Loans struct {
	cfg         Config `snap:"share"`
	rows        table.Slab[Loan]
	byOperation table.Index // by peer and operation
	counts      table.Share // loans of each class
	pages       table.Share // pinned chunks of each class
	arena       table.Share // arena pages of each class
	losses      kernel.Losses

	foundEntries []store.Entry  `snap:"scratch"`
	foundPages   []effects.Page `snap:"scratch"`
	foundCut     bool           `snap:"scratch"` // more chunks were ready than the class may have
}

// Recycle returns an empty table that reuses the memory of l, which must not be used afterwards.
func (l *Loans) Recycle(cfg Config, classes int) Loans {
	return Loans{
		cfg: cfg, rows: l.rows.Recycle(int(cfg.LoansMax)), byOperation: l.byOperation.Recycle(),
		counts: l.counts.Recycle(int(cfg.LoansMax), classes), pages: l.pages.Recycle(int(cfg.PagesMax), classes),
		arena:  l.arena.Recycle(int(cfg.ArenaPages), classes),
		losses: l.losses.Recycle(classes), foundEntries: l.foundEntries, foundPages: l.foundPages,
	}
}

// Loan is a prefix of chunks that a peer may read.
type Loan struct {
	Request
	lease lease.Owner
	hash  uint64       // hash of peer and operation, as in byOperation
	until effects.Time // when the lease ends
	since effects.Time `snap:"skip"` // when the loan began; for operators
	// The class's loss count when the loan began. If the count has changed since, the link of the peer was lost, and
	// the loan is condemned.
	lossCount kernel.LossCount
	entries   []store.Entry  // the pinned chunks
	pages     []effects.Page // the pages that are leased, or kept for a transfer
	copies    int            // number of arena pages that the loan counts for
	cut       bool           // more chunks were ready than the class may have
}

// Request identifies the peer and the operation of a loan.
type Request struct {
	Reader    lease.Reader
	Class     int    // fairness class of the peer
	Operation uint64 // the peer's operation id, the same in a retry
	KeysHash  uint64 // hash of the list of requested keys (HashKeys)
	// Row of the transfer of this node for which the pages are kept; zero: the pages are leased.
	Row table.Handle
}

// ReaderOf returns the peer as the holder of a lease.
func ReaderOf(peer *link.Incarnation) lease.Reader {
	_, id := peer.Link()
	return lease.Reader{Principal: peer.Principal(), PeerID: id, SelfID: peer.SelfID(), KeepsLeases: peer.KeepsLeases()}
}

// EachLoan calls visit with every loan, in the order of the slots.
func (l *Loans) EachLoan(visit func(*Loan)) {
	for slot := range l.rows.Slots() {
		if h := l.rows.At(slot); h != 0 {
			visit(l.rows.Get(h))
		}
	}
}

// Since returns when the loan began.
func (x *Loan) Since() effects.Time { return x.since }

// Until returns when the lease ends, unless it is renewed.
func (x *Loan) Until() effects.Time { return x.until }

// Pages returns the pages of the loan in the order of their keys.
func (x *Loan) Pages() []effects.Page { return x.pages }

// IsCut reports whether the loan is shorter than the prefix that was ready, because of the share of the peer's class.
func (x *Loan) IsCut() bool { return x.cut }

// GrantID returns the read grant over the pages.
func (x *Loan) GrantID() uint64 {
	grant, _ := x.lease.Terms()
	return grant
}

// TimeLeft returns the remaining time of the lease.
func (x *Loan) TimeLeft(now effects.Time) effects.Duration { return x.until.Sub(now) }

// CountReply records that another reply names the loan. If several replies name the loan, a done message is a proof
// only if the peer keeps to leases (lease.Owner.EndByDone).
func (x *Loan) CountReply() { x.lease.CountMessage() }

// HashKeys returns a hash of a list of keys, by which a request with other keys is not taken for a retry of an
// operation.
func HashKeys(s *store.Store, keys [][]byte) uint64 {
	n := uint64(len(keys))
	for _, key := range keys {
		n = n*0x9E3779B97F4A7C15 ^ s.HashKey(key)
	}
	return n
}

// FindPrefix finds the longest readable prefix of keys within the share of a class, and returns the length. A chunk
// that is being written, or that the engine wants back, ends the prefix. The chunks are those of the trust domain of the
// class (S32).
func (l *Loans) FindPrefix(v *env.Env, s *store.Store, class int, keys [][]byte) int {
	l.foundEntries, l.foundPages, l.foundCut = l.foundEntries[:0], l.foundPages[:0], false
	limit := l.pages.FreePlaces(class)
	realm := v.RealmOf(class)
	for _, key := range keys {
		h := s.Find(s.HashIn(realm, key), key)
		page, ready := s.ReadyPage(h)
		if !ready || s.IsWithdrawing(h) || v.Pools.PoolOf(page).HasWriteGrant(page) || l.cfg.WholePageBytes > page.Length {
			break
		}
		if len(l.foundPages) >= limit {
			v.Out.Mark(Marks.PrefixCut)
			l.foundCut = true
			break
		}
		page.Sum = v.Pools.PoolOf(page).SumOf(page)
		l.foundEntries, l.foundPages = append(l.foundEntries, h), append(l.foundPages, page)
	}
	return len(l.foundPages)
}

// IsPrefixCut reports whether the prefix that FindPrefix found is shorter than what is ready, because of the share of
// the class.
func (l *Loans) IsPrefixCut() bool { return l.foundCut }

// IsLoanCut reports the same for a loan that HoldPrefix began.
func (l *Loans) IsLoanCut(h table.Handle) bool { return l.rows.Get(h).cut }

// CanLend reports whether a class may have another loan.
func (l *Loans) CanLend(v *env.Env, class int) bool {
	return v.Pools.HasGrantSlot() && l.counts.HasRoom(class)
}

// LendPrefix pins the prefix that FindPrefix found and leases it to a peer. The caller has checked CanLend.
func (l *Loans) LendPrefix(v *env.Env, s *store.Store, request Request) *Loan {
	h := l.addLoan(v, s, request)
	x := l.rows.Get(h)
	x.lease.GrantPages(v, x.pages, request.Reader, l.cfg.TTL, kernel.Ref{Owner: l.cfg.Owner, Kind: l.cfg.Kind, Subject: h})
	return x
}

// HoldPrefix pins the prefix that FindPrefix found, and holds the pages with in-flight references, for a transfer of
// this node to a peer. ReleasePrefix ends this. The caller has checked CanLend, and must not store the returned pages.
func (l *Loans) HoldPrefix(v *env.Env, s *store.Store, request Request) (table.Handle, []effects.Page) {
	h := l.addLoan(v, s, request)
	pages := l.rows.Get(h).pages
	for _, page := range pages {
		v.Pools.PoolOf(page).HoldPage(page)
	}
	return h, pages
}

// ReleasePrefix ends what HoldPrefix began, because the transfer has settled.
func (l *Loans) ReleasePrefix(v *env.Env, s *store.Store, h table.Handle) {
	for _, page := range l.rows.Get(h).pages {
		v.Pools.PoolOf(page).ReleaseHold(page)
	}
	l.removeLoan(v, s, h)
}

// addLoan inserts a loan and pins the prefix that FindPrefix found.
func (l *Loans) addLoan(v *env.Env, s *store.Store, request Request) table.Handle {
	h, x := l.rows.Add()
	*x = Loan{
		Request: request, hash: l.hashOperation(s, request.Reader.PeerID, request.Operation), until: v.Now.Add(l.cfg.TTL), since: v.Now,
		lossCount: l.losses.CountFor(request.Class),
		entries:   append(x.entries[:0], l.foundEntries...), pages: append(x.pages[:0], l.foundPages...), cut: l.foundCut,
	}
	l.byOperation.Add(x.hash, h)
	l.counts.Acquire(x.Class)
	l.pages.Add(x.Class, len(x.pages))
	for _, entry := range x.entries {
		s.PinEntry(entry, 0, v) // request 0: the pin is not a request's, so it ends no claim
	}
	return h
}

// removeLoan removes a loan and unpins the chunks. The caller knows that nothing reads under the loan any more (M1).
func (l *Loans) removeLoan(v *env.Env, s *store.Store, h table.Handle) {
	x := l.rows.Get(h)
	v.Work.SpendRows(len(x.entries))
	l.unpinChunks(v, s, x)
	l.releaseArena(v, x)
	l.counts.Release(x.Class)
	l.byOperation.Remove(x.hash, h)
	x.entries, x.pages = table.TrimSlice(x.entries), table.TrimSlice(x.pages)
	l.rows.Remove(h)
}

// unpinChunks allows the store to evict the chunks of a loan.
func (l *Loans) unpinChunks(v *env.Env, s *store.Store, x *Loan) {
	for _, entry := range x.entries {
		s.UnpinEntry(entry, v)
	}
	l.pages.Add(x.Class, -len(x.entries))
	x.entries = x.entries[:0]
}

// hashOperation returns the hash of a peer and an operation.
func (l *Loans) hashOperation(s *store.Store, peer effects.Incarnation, operation uint64) uint64 {
	return s.HashKey(peer[:]) ^ operation*0x9E3779B97F4A7C15
}

// FindLoan returns the loan of an operation, or nil. The result is valid during the current call and must not be
// stored.
func (l *Loans) FindLoan(s *store.Store, peer effects.Incarnation, operation uint64) *Loan {
	for p := l.byOperation.Find(l.hashOperation(s, peer, operation)); p.Found(); p = l.byOperation.Next(p) {
		if x := l.rows.Get(p.Handle()); x.Reader.PeerID == peer && x.Operation == operation {
			return x
		}
	}
	return nil
}

// IsInForce reports whether a loan may be named in another reply: the lease is in force, the link of the peer was not
// lost since the loan began, and the time is not over.
func (l *Loans) IsInForce(v *env.Env, x *Loan) bool {
	return x.lease.IsInForce() && !l.isCondemned(x) && v.Now < x.until
}

// CountPins returns the number of pins for loans. A page counts once for each loan. CountPins is for inspection only.
func (l *Loans) CountPins() int { return l.pages.Total() }

// Len returns the number of loans.
func (l *Loans) Len() int { return l.rows.Len() }

// RecountShares counts the loans of each class again, with their chunks and their pages of the arena.
func (l *Loans) RecountShares(r *table.Recount) {
	table.RecountRows(r, "loans", &l.counts, &l.rows, table.Empty, func(x *Loan) (class, n int) { return x.Class, 1 })
	table.RecountRows(r, "chunks of loans", &l.pages, &l.rows, table.Empty, func(x *Loan) (class, n int) { return x.Class, len(x.entries) })
	table.RecountRows(r, "arena pages of loans", &l.arena, &l.rows, table.Empty, func(x *Loan) (class, n int) { return x.Class, x.copies })
}
