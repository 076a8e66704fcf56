package lease

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/protocol"
)

// Renewals decode the renewal requests of readers and build the replies. A request names leases that the reader has
// finished with, and leases for which the reader wants more time. Renewals do not know which flow owns a lease: the
// rank looks up the owner of each named grant in turn.
type Renewals struct {
	ask protocol.RenewRequest
	out protocol.RenewResponse
}

// Begin decodes a renewal request and starts the reply. Begin reports false if the message is malformed. The results of
// all further methods are valid until the next call of Begin.
func (x *Renewals) Begin(v *env.Env, wire *protocol.Limits, ev *effects.Received) bool {
	if err := x.ask.Decode(ev.Body, wire); err != nil {
		return false
	}
	x.out = protocol.RenewResponse{
		Version:  link.VersionMax,
		Extended: x.out.Extended[:0], Gone: x.out.Gone[:0], Done: x.out.Done[:0],
		Stamps: protocol.Stamps{ClockNS: int64(v.Now), EchoNS: x.ask.Stamps.ClockNS},
	}
	return true
}

// Finished returns the grants that the reader will not read any more.
func (x *Renewals) Finished() []uint64 { return x.ask.Done }

// Wanted returns the grants for which the reader wants more time.
func (x *Renewals) Wanted() []uint64 { return x.ask.Grants }

// Its reports whether the lease under the named grant is in force and is held by the peer that sent the request.
func (x *Renewals) Its(lease *Owner, grant uint64) bool {
	return lease.Stands() && lease.SpokenOfBy(x.ask.Incarnation, x.ask.To, grant)
}

// Known records that the requester holds a lease of this node. The requester has so proven that it knows this node by a
// name that was given to the requester, and the reply states that name.
func (x *Renewals) Known() { x.out.Incarnation = x.ask.To }

// Ended adds a grant to the reply's confirmations that nothing is leased to the reader under the grant any more.
func (x *Renewals) Ended(grant uint64) { x.out.Done = append(x.out.Done, grant) }

// Extended adds the outcome of a lease, for which the reader wanted more time, to the reply. A lease that was capped
// appears in neither list of the reply, because the lease is in force as before.
func (x *Renewals) Extended(v *env.Env, grant uint64, what Extended, ttl effects.Duration) {
	switch what {
	case Gone:
		v.Out.Mark(Marks.RenewGone)
		x.out.Gone = append(x.out.Gone, grant)
		return
	case Capped:
		v.Out.Mark(Marks.RenewCapped) // the lease is in force as before
	case Given:
		x.out.Extended, x.out.LeaseNS = append(x.out.Extended, grant), uint64(ttl)
	}
	x.Known()
}

// Reply sends the reply to the request.
func (x *Renewals) Reply(v *env.Env, to effects.Request) {
	v.Out.Reply(effects.Reply{Request: to, Body: v.Out.Cut(x.out.Append(v.Out.Arena()))})
}
