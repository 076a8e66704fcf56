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
	sender  effects.Principal // of the request
	refused bool              // the sender lacks the role for renewals
	request protocol.RenewRequest
	reply   protocol.RenewResponse
}

// DecodeRequest decodes a renewal request and starts the reply. DecodeRequest reports false if the message is
// malformed. The results of all further methods are valid until the next call of DecodeRequest.
func (x *Renewals) DecodeRequest(v *env.Env, wire *protocol.Limits, ev *effects.Received) bool {
	if err := x.request.Decode(ev.Body, wire); err != nil {
		return false
	}
	x.sender, x.refused = ev.Principal, false
	x.reply = protocol.RenewResponse{
		Version:  link.VersionMax,
		Extended: x.reply.Extended[:0], Gone: x.reply.Gone[:0], Done: x.reply.Done[:0],
		Stamps: protocol.Stamps{ClockNS: int64(v.Now), EchoNS: x.request.Stamps.ClockNS},
	}
	return true
}

// RefuseAll makes the sender of the request the holder of no lease, because it lacks the role for renewals.
func (x *Renewals) RefuseAll() { x.refused = true }

// FinishedGrants returns the grants that the reader will not read any more.
func (x *Renewals) FinishedGrants() []uint64 { return x.request.Done }

// WantedGrants returns the grants for which the reader wants more time.
func (x *Renewals) WantedGrants() []uint64 { return x.request.Grants }

// IsHolder reports whether the lease under the named grant is in force and is held by the peer that sent the request.
func (x *Renewals) IsHolder(lease *Owner, grant uint64) bool {
	return !x.refused && lease.IsInForce() && lease.IsHeldBy(x.sender, x.request.Incarnation, x.request.To, grant)
}

// ConfirmHolder records that the requester holds a lease of this node. The requester has so proven that it knows this
// node by a name that was given to the requester, and the reply states that name.
func (x *Renewals) ConfirmHolder() { x.reply.Incarnation = x.request.To }

// AddEnded adds a grant to the reply's confirmations that nothing is leased to the reader under the grant any more.
func (x *Renewals) AddEnded(grant uint64) { x.reply.Done = append(x.reply.Done, grant) }

// AddExtended adds the outcome of a lease, for which the reader wanted more time, to the reply. A lease that was capped
// appears in neither list of the reply, because the lease is in force as before.
func (x *Renewals) AddExtended(v *env.Env, grant uint64, outcome ExtendOutcome, ttl effects.Duration) {
	switch outcome {
	case LeaseOver:
		v.Out.Mark(Marks.RenewGone)
		x.reply.Gone = append(x.reply.Gone, grant)
		return
	case LeaseCapped:
		v.Out.Mark(Marks.RenewCapped) // the lease is in force as before
	case LeaseExtended:
		x.reply.Extended, x.reply.LeaseNS = append(x.reply.Extended, grant), uint64(ttl)
	}
	x.ConfirmHolder()
}

// SendReply sends the reply to the request.
func (x *Renewals) SendReply(v *env.Env, to effects.Request) {
	v.Out.Reply(effects.Reply{Request: to, Body: v.Out.Cut(x.reply.Append(v.Out.Arena()))})
}
