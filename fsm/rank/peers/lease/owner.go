// Package lease holds the timers of both ends of a read lease. A read lease lets a peer read pages of this node, or
// this node read pages of a peer, for a limited time. Owner is the end of the node that owns the pages: it records
// until when the peer may read them, and ends the lease. Right is the end of the reader: it records until when this
// node may read a peer's pages. Renewers ask the owners for more time on behalf of a reader, and Renewals decode and
// answer these requests at an owner.
//
// The package knows no flow. The flow that grants a lease decides which message announces the lease to the peer.
//
// A caller may rely on the following:
//
//   - At the owner a lease ends exactly once, and the pages are freed only when nobody can read them any more. On a
//     leased plane the proof is the reader's done message, or the end of the lease's time if the reader keeps to
//     leases. On a fenced plane the proof is always the plane's confirmation of the revocation.
//   - At the reader the lease ends no later than at the owner, as long as the clocks of the two nodes drift apart by no
//     more than the configured bound (rule M4 in docs/safety.md).
//   - A lease that has ended is never revived by a renewal.
//
// Example: a sender on a leased plane offers two chunks under a lease of 10 s. Owner.GrantPages puts the pages of the
// chunks under a read grant, and the offer names that grant and the time at which the lease began. The receiver
// converts this time to its own clock and keeps a Right that ends a guard interval earlier. After 5 s the chunks have
// not been read, so the receiver's Renewers send a renewal request. The sender decodes the request with Renewals, calls
// Owner.Extend, and replies that the grant has another 10 s. The receiver counts these 10 s from before the request was
// sent. When the receiver has read the chunks, the receiver sends a done message. The sender calls Owner.EndByDone, and
// the pages are free.
package lease

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/identity"
)

// Owner is the owner's end of a read lease. The lease lets one peer read pages of this node until a time that both
// nodes know (rule M4). The pages are under a read grant for as long as the peer may read, whatever became of the
// command that put the pages.
//
// How a lease ends depends on the data plane. A fenced plane copies the bytes for the reader and can prove that the
// reader has stopped. On a fenced plane every lease ends with a revocation. On a leased plane the owner cannot observe
// a read. There the lease ends with the reader's done message, or at the time at which a reader that keeps to leases
// has stopped by the reader's own clock.
//
// Invariant: the pages stay under the grant until the end of the lease is proven (rules M1 and M4). A revocation that
// is not yet confirmed keeps the grant in quarantine.
type Owner struct {
	grant    effects.GrantID // the read grant over the pages; 0 if there is no lease
	began    effects.Time    // when the lease began, by this node's clock
	until    effects.Time    // when the lease's time is over, even if its timer is handled later
	expiry   kernel.TimerID  `snap:"set"`
	revoking bool            // a revocation was requested and is not confirmed yet
	reader   Reader          // the peer that holds the lease
	messages uint32          // number of messages to the reader that named the lease
}

// Reader identifies the lease holder: an incarnation of a peer. Another incarnation of the same peer has no say in the
// lease (rule M2).
type Reader struct {
	Principal   effects.Principal   // the identity that the incarnation proved; 0: none
	PeerID      effects.Incarnation // the peer's incarnation; zero for a plain peer, which has no incarnation names
	SelfID      effects.Incarnation // the name by which the peer knows this node
	KeepsLeases bool                // the peer keeps to leases: it stops reading when the time is over
}

// IsInForce reports whether the lease is in force: the pages may be read, and no revocation was requested.
func (x *Owner) IsInForce() bool { return x.grant != 0 && !x.revoking }

// MayBeRead reports whether the peer may still be reading the pages: the lease is in force, or the end of the lease is
// not proven yet.
func (x *Owner) MayBeRead() bool { return x.grant != 0 }

// Terms returns what a message to the reader states about the lease: the grant, and the time by this node's clock at
// which the lease began.
func (x *Owner) Terms() (grant uint64, began int64) { return uint64(x.grant), int64(x.began) }

// GrantPages begins the lease. The caller must call GrantPages before the first message that names the lease is sent,
// so that a done message from the reader, however early, finds a lease to end. ref receives the lease's timer and the
// confirmation of a revocation.
func (x *Owner) GrantPages(v *env.Env, pages []effects.Page, to Reader, ttl effects.Duration, ref kernel.Ref) {
	*x = Owner{
		grant: v.Pools.LeasePages(pages, ref), began: v.Now, until: v.Now.Add(ttl), reader: to, messages: 1,
	}
	v.Timers.Set(&x.expiry, x.until, ref)
	v.Out.Grant(effects.Grant{ID: x.grant, Peer: to.PeerID, Read: true, Pages: pages})
	v.Out.Observe(effects.Observe{
		Fact: effects.FactGranted, Count: uint32(len(pages)), ID: uint64(x.grant), Peer: to.PeerID,
	})
}

// CountMessage records that another message to the reader names the lease. A repeated message names the same lease and
// does not begin a second lease, because the reader could then act on either.
func (x *Owner) CountMessage() { x.messages++ }

// EndByDone handles the reader's statement that the reader has stopped reading, and reports whether the lease is over.
// EndByDone does nothing unless the lease is in force.
//
// On a leased plane the statement is the proof, with an exception. A peer that does not keep to leases does not
// distinguish attempts, and may still read because of an earlier message while the peer replies to a later message. The
// statement of this kind of peer is proof only if no more than one message named the lease. In all remaining cases
// EndByDone requests a revocation, and the lease is over when the revocation is confirmed.
func (x *Owner) EndByDone(v *env.Env, leased bool) (over bool) {
	switch {
	case !x.IsInForce():
		return false
	case leased && (x.reader.KeepsLeases || x.messages < 2):
		x.endGrant(v)
		return true
	}
	x.requestRevocation(v)
	return false
}

// EndByTime handles the lease's timer and reports whether the lease is over. On a leased plane a reader that keeps to
// leases has already stopped by its own clock, on which the lease ends earlier (rule M4), so the lease is over at once.
// A reader that does not keep to leases may read on, and EndByTime requests a revocation, as it does on a fenced plane.
func (x *Owner) EndByTime(v *env.Env, leased bool) (over bool) {
	x.expiry = 0
	if leased && x.reader.KeepsLeases {
		x.endGrant(v)
		return true
	}
	if x.IsInForce() {
		x.requestRevocation(v)
	}
	return false
}

// OnRevoked handles the plane's confirmation that nobody reads the pages any more, and reports whether the lease is
// over. A confirmation that was not requested changes nothing.
func (x *Owner) OnRevoked(v *env.Env) (over bool) {
	if !x.revoking {
		return false
	}
	x.endGrant(v)
	return true
}

// RevokeLost requests the revocation of a lease that is in force because its reader is gone. RevokeLost is only for
// planes that can take a lease back.
func (x *Owner) RevokeLost(v *env.Env) {
	if x.IsInForce() {
		x.requestRevocation(v)
	}
}

// requestRevocation requests the end of the lease.
//
// Invariant: the grant stays in quarantine until the plane confirms the revocation, so that the pages are not free
// before (M1).
func (x *Owner) requestRevocation(v *env.Env) {
	x.revoking = true
	v.Pools.QuarantineGrant(x.grant)
	v.Out.Revoke(x.grant)
}

// endGrant ends the grant over the pages. A page with further references or grants stays in use because of them.
func (x *Owner) endGrant(v *env.Env) {
	v.Timers.Stop(&x.expiry)
	v.Pools.EndGrant(x.grant)
	*x = Owner{reader: x.reader, messages: x.messages}
}

// IsHeldBy reports whether a message about a grant comes from the incarnation that holds this lease. Both incarnation
// names and the grant must match (rule M2): the names prove which peer sent the message, and the grant proves that the
// peer means this lease and not an earlier lease. If the peer proved an identity, the sender of the message must have
// proved the same (S29).
func (x *Owner) IsHeldBy(sender effects.Principal, peer, self [16]byte, grant uint64) bool {
	return sender.MayActFor(x.reader.Principal) &&
		identity.EqualSecrets(peer, x.reader.PeerID) && identity.EqualSecrets(self, x.reader.SelfID) && effects.GrantID(grant) == x.grant
}

// ExtendOutcome is the outcome of a request for more time.
type ExtendOutcome uint8

// Outcomes of Owner.Extend.
const (
	// LeaseOver: the time of the lease is over, even if the timer was not handled yet. An ended lease is never revived.
	LeaseOver     ExtendOutcome = iota
	LeaseCapped                 // the lease is in force as before and gets no more time
	LeaseExtended               // the lease was extended
)

// Extend restarts the full time of a lease from now on, unless the total since the lease began would exceed the longest
// lifetime (limit). The owner counts the new time from now. The reader counts the new time from before its request was
// sent, which is earlier, so that the reader's time ends first (rule M4).
func (x *Owner) Extend(v *env.Env, ttl, limit effects.Duration, ref kernel.Ref) ExtendOutcome {
	switch {
	case v.Now >= x.until:
		return LeaseOver
	case v.Now.Add(ttl) > x.began.Add(limit):
		return LeaseCapped
	}
	x.until = v.Now.Add(ttl)
	v.Timers.Set(&x.expiry, x.until, ref)
	return LeaseExtended
}
