package flow

import (
	"strconv"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory"
	"github.com/kvferry/kvferry/fsm/rank/memory/allocqueue"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/protocol"
)

// The functions of this file make the reasons that targets give for a failure, beside its code. A reason is made only
// where something failed.

// A Sender identifies the sender of a request or an offer, to which a refusal is reported.
type Sender struct {
	Request  effects.Request
	Conn     effects.Conn
	Class    int
	Extended bool // the sender knows our codes
	// Trace is the span of the sender that the message names, if the request is traced, and ArrivedAt is when the message
	// was received.
	Trace     effects.TraceContext
	ArrivedAt effects.Time
}

// ReportRefusal reports a refusal as a fact of this rank. The fact of a traced request has a report, so that the refusal is
// found by the trace.
func (e *Env) ReportRefusal(from Sender, peer protocol.UUID, code effects.Code, keys int, why *effects.Why) {
	fact := effects.Observe{
		Fact: effects.FactAllocRefused, Code: code, Count: uint32(keys), ID: uint64(from.Conn),
		Peer: effects.Incarnation(peer),
	}
	if why != nil {
		why.Name, why.Peer = e.PeerName(from.Class), fact.Peer
		fact.Why = why
	}
	fact.Report = e.TraceReport(from.Trace, from.ArrivedAt)
	e.Out.Observe(fact)
}

// TraceReport returns the report of a peer's request that arrived at an instant and has been answered now, or nil if the
// request has no trace. All of its time is in PhaseQueue.
func (e *Env) TraceReport(trace effects.TraceContext, arrivedAt effects.Time) *effects.Report {
	if trace == (effects.TraceContext{}) {
		return nil
	}
	report := effects.Report{Began: arrivedAt, Trace: effects.Trace{Context: trace}}
	report.Phases[effects.PhaseQueue] = e.Now.Sub(arrivedAt)
	return e.Out.CopyReport(report)
}

// NoRoom returns which of the bounded resources a pending request lacks, and the configuration key that bounds the
// resource.
func (e *Env) NoRoom(q *allocqueue.Row) *effects.Why {
	all, n := &e.Landings.Bundles, int(q.PagesMax)
	layered := all.LayersPerChunk() > 0 && q.Owner == kernel.OwnerPushTarget
	unit := " chunks"
	if layered {
		unit = " pages, one for each layer of a chunk"
	}
	inUse := e.Pools.ShareUse(e.Pool, q.Class)
	switch {
	case !e.Landings.MayAddGrant(&e.Env, q.Class):
		return &effects.Why{
			Field: "grants", Ours: FormatCount(e.Pools.CountGrants()) + " of " + FormatCount(e.Landings.GrantsMax()) +
				" in use, of which one peer has no more than it leaves to others,",
			Theirs: "one more", Remedy: "retry when transfers have ended, or send more chunks in each put",
		}
	case layered && !all.HasRoom(q.Class, max(1, n/int(all.LayersPerChunk()))):
		return &effects.Why{
			Field: "layerwise.bundles", Ours: FormatCount(all.Len()) + " of " + FormatCount(all.Max()) +
				" in use, of which one peer has no more than it leaves to others,",
			Theirs: FormatCount(max(1, n/int(all.LayersPerChunk()))) + " more", Remedy: "retry when chunks are whole, or raise " +
				"layerwise.bundles of the receiver, or leave it out",
		}
	case !e.Pool.FitsTenant(q.Tenant, q.PagesMax):
		return TenantShareReason(e.Pool, q.Tenant, FormatCount(n)+unit)
	case !e.Pools.FitsOrigin(e.Pool, q.Class, q.PagesMax):
		return &effects.Why{
			Field: "origin_share_pct", Ours: FormatCount(e.Pools.OriginUse(e.Pool, q.Class)) + " of at most " +
				FormatCount(e.Pool.OriginLimit()) + " of " + FormatCount(e.Pool.TotalPages()) + " pages in use by this sender's host,",
			Theirs: FormatCount(n) + unit, Remedy: "retry when its chunks were read, or raise origin_share_pct or " + e.Pool.ConfigKey() +
				" of the receiver",
		}
	case !e.Pools.FitsShare(e.Pool, q.Class, q.PagesMax):
		return &effects.Why{
			Field: "peer_share_pct", Ours: FormatCount(inUse) + " of at most " + FormatCount(e.Pool.ClassLimit()) + " of " +
				FormatCount(e.Pool.TotalPages()) + " pages in use by this sender,",
			Theirs: FormatCount(n) + unit, Remedy: "retry when its chunks were read, or raise peer_share_pct or " + e.Pool.ConfigKey() +
				" of the receiver",
		}
	case !e.Store.HasRoom(n):
		return &effects.Why{
			Field: e.Pool.ConfigKey(), Ours: FormatCount(e.Store.CountEntries()) + " of " + FormatCount(e.Store.EntriesMax()) +
				" names of chunks in use, as many as the pool allows,",
			Theirs: FormatCount(n) + unit, Remedy: "retry later, or enlarge " + e.Pool.ConfigKey() + " of the receiver",
		}
	case uint32(n) <= e.Pool.FreePages():
		return &effects.Why{
			Field: e.Pool.ConfigKey(), Ours: FormatCount(e.Pool.FreePages()) + " of " + FormatCount(e.Pool.TotalPages()) +
				" pages free, and kept for requests that came before,",
			Theirs: FormatCount(n) + unit, Remedy: "retry later, or enlarge " + e.Pool.ConfigKey() + " of the receiver",
		}
	}
	w := NoPagesReason(&e.Env, n)
	w.Theirs = FormatCount(n) + unit
	return w
}

// TenantShareReason returns the reason that a tenant may have no more pages of a pool.
func TenantShareReason(pool *memory.Pool, tenant effects.Tenant, wanted string) *effects.Why {
	return &effects.Why{
		Field: "tenant_share_pct", Ours: FormatCount(pool.TenantUse(tenant)) + " of at most " + FormatCount(pool.TenantLimit()) + " of " +
			FormatCount(pool.TotalPages()) + " pages in use by the chunks of this tenant,",
		Theirs: wanted, Remedy: "retry when its chunks were read, or raise tenant_share_pct or " + pool.ConfigKey() + " of the receiver",
	}
}

// NoPagesReason returns the reason that there is no memory for a number of chunks.
func NoPagesReason(v *env.Env, keys int) *effects.Why {
	return &effects.Why{
		Field: v.Pool.ConfigKey(), Ours: FormatCount(v.Pool.FreePages()) + " of " + FormatCount(v.Pool.TotalPages()) + " pages free",
		Theirs: FormatCount(keys) + " chunks", Remedy: "retry later, or enlarge " + v.Pool.ConfigKey() + " of the receiver",
	}
}

// UnknownIncarnationReason returns the reason that a message is not from, or not for, an incarnation that completed a
// handshake here.
func UnknownIncarnationReason() *effects.Why {
	return &effects.Why{Field: "kvf_inc with kvf_to", Ours: "not a pair of a completed handshake"}
}

// UnidentifiedReason returns the reason for a code of Links.IdentifyPeer.
func UnidentifiedReason(code effects.Code) *effects.Why {
	if code == effects.Forbidden {
		return link.OtherIdentityReason()
	}
	return UnknownIncarnationReason()
}

// ReportForbidden reports that a message was refused because its sender lacks a role or has another identity than the
// peer in whose name it was sent.
func (e *Env) ReportForbidden(ev *effects.Received, stage effects.Stage, why *effects.Why) {
	why.Stage = stage
	e.Out.Observe(effects.Observe{Fact: effects.FactMalformed, Code: effects.Forbidden, ID: uint64(ev.Conn), Why: why})
}

// LinkLostReason returns the reason that the link of a peer is lost, so that the peer has to shake hands again.
func LinkLostReason() *effects.Why {
	return &effects.Why{Field: "data plane", Theirs: "gone"}
}

// TooLateReason returns the reason that the remaining time of a read lease is too short.
func TooLateReason() *effects.Why {
	return &effects.Why{Field: "kvf_lease_ns", Ours: "over, or nearly,"}
}

// endReasons contains the reasons for the end of an offer, by code, where the code alone does not explain it.
//
//kvferry:table
var endReasons = [effects.CodeCount]effects.Why{
	effects.Cancelled:   {Field: "request", Ours: "abandoned, or its offer taken back"},
	effects.PeerLost:    {Field: "data plane", Theirs: "gone"},
	effects.Unreachable: {Field: "transfer_channel", Ours: "no way to the pages"},
	effects.Expired:     *TooLateReason(),
	effects.Faulted:     {Field: "data plane", Ours: "reported an error"},
	effects.Draining:    {Remedy: "use another receiver: this one is shutting down"},
}

// EndReason returns the reason that is given to the sender of an offer that ended with a code, and in the outcome of a
// fetch that read chunks of the offer.
func EndReason(code effects.Code) *effects.Why {
	w := effects.Why{}
	if int(code) < len(endReasons) {
		w = endReasons[code]
	}
	return &w
}

// FormatCount formats a count for a message to people.
func FormatCount[T int | uint32 | uint64](n T) string { return strconv.FormatUint(uint64(n), 10) }

// EntryName returns the name of one entry of a list, such as "keys[3]".
func EntryName(list string, i int) string { return list + "[" + strconv.Itoa(i) + "]" }

// ReportReturned reports that a sender gave grants or offers back, with the reason that the sender stated. A code of 0
// means that the sender stated no reason; then nothing is reported.
func (e *Env) ReportReturned(
	class int, peer effects.Incarnation, n int, stage effects.Stage, code uint32, reason []byte,
) {
	if code == 0 {
		return
	}
	e.Out.Observe(effects.Observe{
		Fact: effects.FactGivenBack, Code: effects.CodeFromWire(code), Count: uint32(n), Peer: peer,
		Why: &effects.Why{Name: e.PeerName(class), Peer: peer, Stage: stage, Said: effects.SanitizeText(reason)},
	})
}

// VanillaPeerReason returns the reason that kvferry and vanilla LMCache were connected with each other.
func VanillaPeerReason() *effects.Why {
	return &effects.Why{
		Field: "kind", Ours: "kvferry (its planes admit only peers with a proven identity)", Theirs: "lmcache",
		Remedy: "run kvferry at both ends, or lmcache at both",
	}
}

// ReportMalformed reports that a peer's bytes are not a message that is valid here.
func (e *Env) ReportMalformed(from Sender, stage effects.Stage, err error, body []byte) {
	why := link.DecodeReason(err)
	if theirs := protocol.ProgramOf(body, &e.Cfg.Wire); theirs != "" {
		why = *VanillaPeerReason()
		why.Theirs = theirs
	}
	why.Stage = stage
	e.Out.Observe(effects.Observe{Fact: effects.FactMalformed, Code: effects.Malformed, ID: uint64(from.Conn), Why: &why})
}

// OtherBatchReason returns the reason that a message has the operation number of another batch.
func OtherBatchReason() *effects.Why {
	return &effects.Why{
		Field: "kvf_op", Ours: "of another batch", Theirs: "of this one",
		Remedy: "send each batch under a number of its own",
	}
}

// NoRequestReason returns the reason that a command names no request.
func NoRequestReason() *effects.Why {
	return &effects.Why{Field: "Request", Theirs: "empty", Ours: "a request's id"}
}
