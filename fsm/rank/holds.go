package rank

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/put"
	"github.com/kvferry/kvferry/fsm/rank/memory/allocqueue"
	"github.com/kvferry/kvferry/fsm/rank/memory/landing"
	"github.com/kvferry/kvferry/fsm/rank/peers/loan"
)

// A Hold keeps pages, or a place in the queue for pages, until it ends.
type Hold struct {
	Kind  HoldKind
	Peer  effects.Incarnation // zero: a peer without extensions, or one that is not known yet
	Addr  effects.Addr        // of the peer of a put, at which it takes requests; zero for other kinds
	Pages int
	// Since is when the hold began, and zero if that is not recorded.
	Since effects.Time
	// Until is when the hold ends at the latest, unless it is renewed; zero if it ends with its command or its peer.
	Until effects.Time
	// Revoked says that the hold was taken back, and that it is not proven yet that the peer does not touch the pages.
	Revoked bool
}

// A HoldKind says what a hold is.
type HoldKind string

// The kinds of holds.
const (
	HoldPut     HoldKind = "put"     // a put of our engine, whose pages belong to the put
	HoldGrant   HoldKind = "grant"   // a peer, or a read of this node from a peer, may store into the pages
	HoldWaiting HoldKind = "waiting" // a request of a peer that waits for pages; Pages is what it wants
	HoldRecall  HoldKind = "recall"  // a peer may read pages of chunks that it recalled
	HoldShared  HoldKind = "shared"  // a peer may read pages of chunks that this node shares
)

// AppendHolds appends the holds of peers and of puts, for operators. Reservations and Gets of the engine are not among
// them, because the engine knows these.
func (r *Rank) AppendHolds(to []Hold) []Hold {
	addPut := func(x *put.Row) {
		to = append(to, Hold{Kind: HoldPut, Peer: x.PeerID, Addr: effects.Addr{Host: x.PeerAddr.Host, Port: x.PeerAddr.AllocPort},
			Pages: len(x.Pages), Since: x.Began()})
	}
	r.pushSource.EachPut(addPut)
	r.pullSource.EachPut(addPut)
	r.sharedRooms.Landings.EachLanding(func(x *landing.Landing) {
		to = append(to, Hold{Kind: HoldGrant, Peer: x.Peer, Pages: x.PageCount(), Since: x.GrantedAt(), Until: x.Expires, Revoked: x.Revoking})
	})
	r.sharedRooms.Pending.EachWaiting(func(x *allocqueue.Row) {
		to = append(to, Hold{Kind: HoldWaiting, Peer: x.Peer, Pages: int(x.PagesMax), Since: x.ArrivedAt})
	})
	addLoans := func(kind HoldKind, loans *loan.Loans) {
		loans.EachLoan(func(x *loan.Loan) {
			to = append(to, Hold{Kind: kind, Peer: x.Reader.PeerID, Pages: len(x.Pages()), Since: x.Since(), Until: x.Until()})
		})
	}
	addLoans(HoldRecall, r.recallTarget.Loans())
	addLoans(HoldShared, r.p2pOwner.Loans())
	return to
}
