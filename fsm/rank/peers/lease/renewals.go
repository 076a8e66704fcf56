package lease

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/protocol"
)

// Renewals read what readers ask of their leases, and answer: some they have finished with, of others they want more
// time. Whose a lease is they do not know: the rank asks each owner, one lease after the other.
type Renewals struct {
	ask protocol.RenewRequest
	out protocol.RenewResponse
}

// Begin reads a request, and says whether it is one. What it gives is valid until the next.
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

// Finished are the grants that the reader will not read any more.
func (x *Renewals) Finished() []uint64 { return x.ask.Done }

// Wanted are the grants that it wants more time for.
func (x *Renewals) Wanted() []uint64 { return x.ask.Grants }

// Its says whether a lease, of which a grant is, stands and is the asker's.
func (x *Renewals) Its(lease *Owner, grant uint64) bool {
	return lease.Stands() && lease.SpokenOfBy(x.ask.Incarnation, x.ask.To, grant)
}

// Known notes that a lease was the asker's, who so has proven that it knows us by a name of ours: it is told by that
// name.
func (x *Renewals) Known() { x.out.Incarnation = x.ask.To }

// Ended confirms that nothing is kept for the reader under a grant any more.
func (x *Renewals) Ended(grant uint64) { x.out.Done = append(x.out.Done, grant) }

// Extended notes what became of a lease that the reader wants more time for.
func (x *Renewals) Extended(v *env.Env, grant uint64, what Extended, ttl effects.Duration) {
	switch what {
	case Gone:
		v.Out.Mark(Marks.RenewGone)
		x.out.Gone = append(x.out.Gone, grant)
		return
	case Capped:
		v.Out.Mark(Marks.RenewCapped) // It stands as it did.
	case Given:
		x.out.Extended, x.out.LeaseNS = append(x.out.Extended, grant), uint64(ttl)
	}
	x.Known()
}

// Reply answers the request.
func (x *Renewals) Reply(v *env.Env, to effects.Request) {
	v.Out.Reply(effects.Reply{Request: to, Body: v.Out.Cut(x.out.Append(v.Out.Arena()))})
}
