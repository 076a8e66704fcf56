// Package lease has both ends of a read lease. An Owner's row says until when a peer may read pages of ours; a reader's
// says how long we may read a peer's, and asks for more time.
//
// A caller may rely on this: at the owner a lease ends once, and its pages are free only when nobody can read them any
// more (on leased planes by the reader's last words or by time, on fenced ones when the plane has revoked it); at the
// reader it ends no later than at the owner, however far their clocks are apart (rule M4). Who leases says to whom, and
// with which message.
package lease

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/identity"
)

// An Owner is the owner's end of a lease, which lets one peer read pages of ours until a time that both know (M4): they
// are under a read grant for as long as the peer may read them, whatever became of the command that they were put with.
//
// How it ends depends on who has the bytes in his hands. A fenced plane copies for the reader, and proves that it
// stopped: there every end is a revocation. On a leased plane nobody sees a read, so its end is the reader's own
// word, or the time by which a reader that keeps to leases has stopped by its own clock.
type Owner struct {
	grant    effects.GrantID // 0: none
	began    effects.Time
	until    effects.Time   // by then its time is over, whenever that is noticed
	expiry   kernel.TimerID `snap:"set"`
	revoking bool           // its end was asked for, and is not proven yet
	reader   Reader
	spoken   uint32 // how many messages to its reader spoke of it
}

// A Reader is the life of a peer that a lease is for: another life of it may not speak of the lease.
type Reader struct {
	Who   effects.Incarnation // zero: a plain peer, which has no names
	Us    effects.Incarnation // what it calls us
	Keeps bool                // it keeps to leases: it reads no more when the time is over
}

// Stands says that the pages may be read, and that nobody has asked for the lease's end.
func (x *Owner) Stands() bool { return x.grant != 0 && !x.revoking }

// Out says that the pages may still be read: it stands, or its end is not proven.
func (x *Owner) Out() bool { return x.grant != 0 }

// Terms are what a message to its reader says of it: the grant, and when it began by our clock.
func (x *Owner) Terms() (grant uint64, began int64) { return uint64(x.grant), int64(x.began) }

// Grant begins the lease, before the message that speaks of it first leaves: so its reader's word, however early it
// comes, finds something to end. ref is told of its end by time, and of the proof that a revocation took effect.
func (x *Owner) Grant(v *env.Env, pages []effects.Page, to Reader, ttl effects.Duration, ref kernel.Ref) {
	*x = Owner{
		grant: v.Pools.Lend(pages, ref), began: v.Now, until: v.Now.Add(ttl), reader: to, spoken: 1,
	}
	v.Timers.Set(&x.expiry, x.until, ref)
	v.Out.Grant(effects.Grant{ID: x.grant, Peer: to.Who, Read: true, Pages: pages})
	v.Out.Observe(effects.Observe{
		Fact: effects.FactGranted, Count: uint32(len(pages)), ID: uint64(x.grant), Peer: to.Who,
	})
}

// Spoke notes that one more message speaks of the lease. It is the same lease: a second one would let the reader come
// upon either.
func (x *Owner) Spoke() { x.spoken++ }

// EndByWord ends a lease that stands by its reader's word that it reads no more, and says whether it is over. On
// leased planes the word is the proof; but one who knows no attempts may read by an earlier message when it answers
// a later one, so of him it is that only while one message spoke of the lease.
func (x *Owner) EndByWord(v *env.Env, leased bool) (over bool) {
	switch {
	case !x.Stands():
		return false
	case leased && (x.reader.Keeps || x.spoken < 2):
		x.end(v)
		return true
	}
	x.revoke(v)
	return false
}

// EndByTime ends a lease whose time is over, and says whether it is. On leased planes a reader that keeps to leases
// was told by its own clock before ours was (M4); any other may read on.
func (x *Owner) EndByTime(v *env.Env, leased bool) (over bool) {
	x.expiry = 0
	if leased && x.reader.Keeps {
		x.end(v)
		return true
	}
	if x.Stands() {
		x.revoke(v)
	}
	return false
}

// Revoked takes the proof that nobody reads any more, and says whether the lease is over by it. It is not if nobody
// asked.
func (x *Owner) Revoked(v *env.Env) (over bool) {
	if !x.revoking {
		return false
	}
	x.end(v)
	return true
}

// Withdraw asks for the end of a lease that stands, on a plane that can take it back: its reader is gone.
func (x *Owner) Withdraw(v *env.Env) {
	if x.Stands() {
		x.revoke(v)
	}
}

// revoke asks for the end. The grant stays in quarantine until it is proven: its pages are not free before.
func (x *Owner) revoke(v *env.Env) {
	x.revoking = true
	v.Pools.Quarantine(x.grant)
	v.Out.Revoke(x.grant)
}

// end frees the pages of the grant; whoever else has them keeps them.
func (x *Owner) end(v *env.Env) {
	v.Timers.Stop(&x.expiry)
	v.Pools.End(x.grant)
	*x = Owner{reader: x.reader, spoken: x.spoken}
}

// SpokenOfBy says whether who speaks of a grant is the life of the peer that has the lease of it. Both names and the
// grant have to fit: the names prove the peer, the grant that it means this lease and not an earlier one.
func (x *Owner) SpokenOfBy(who, us [16]byte, grant uint64) bool {
	return identity.Same(who, x.reader.Who) && identity.Same(us, x.reader.Us) && effects.GrantID(grant) == x.grant
}

// Extended is what became of a request for more time.
type Extended uint8

// What may become of it.
const (
	Gone   Extended = iota // its time is over, noticed or not: what has ended is never revived
	Capped                 // it stands as it did, and gets no more
	Given
)

// Extend gives a lease that stands its whole time anew, but none beyond most since it began. The time counts from
// now, and for its reader from before it asked: the reader's ends first (M4).
func (x *Owner) Extend(v *env.Env, ttl, most effects.Duration, ref kernel.Ref) Extended {
	switch {
	case v.Now >= x.until:
		return Gone
	case v.Now.Add(ttl) > x.began.Add(most):
		return Capped
	}
	x.until = v.Now.Add(ttl)
	v.Timers.Set(&x.expiry, x.until, ref)
	return Given
}
