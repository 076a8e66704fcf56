package flow

import (
	"strconv"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory/allocqueue"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/protocol"
)

// The functions of this file make the reasons that targets give for a failure, beside its code. A reason is made only
// where something failed.

// An Asker identifies the sender of a request or an offer, to which a refusal is reported.
type Asker struct {
	To       effects.Request
	Conn     effects.Conn
	Class    int
	Extended bool // the sender knows our codes
}

// Note reports a refusal as a fact of this rank.
func (e *Env) Note(who Asker, peer protocol.UUID, code effects.Code, keys int, why *effects.Why) {
	fact := effects.Observe{
		Fact: effects.FactAllocRefused, Code: code, Count: uint32(keys), ID: uint64(who.Conn),
		Peer: effects.Incarnation(peer),
	}
	if why != nil {
		why.Name, why.Peer = e.Name(who.Class), fact.Peer
		fact.Why = why
	}
	e.Out.Observe(fact)
}

// NoRoom returns which of the bounded resources a pending request lacks, and the configuration key that bounds the
// resource.
func (e *Env) NoRoom(q *allocqueue.Row) *effects.Why {
	all, n := &e.Landings.Bundles, int(q.Keys)
	layered := all.Layers() > 0 && q.Owner == kernel.OwnerPushTarget
	of := " chunks"
	if layered {
		of = " pages, one for each layer of a chunk"
	}
	peers := e.Pools.ShareUse(e.Pool, q.Class)
	switch {
	case !e.Landings.MayGrant(&e.Env, q.Class):
		return &effects.Why{
			Field: "grants", Ours: Number(e.Pools.Grants()) + " of " + Number(e.Landings.GrantsMax()) +
				" in use, of which one peer has no more than it leaves to others,",
			Theirs: "one more", Remedy: "retry when transfers have ended, or send more chunks in each put",
		}
	case layered && !all.Room(q.Class, max(1, n/int(all.Layers()))):
		return &effects.Why{
			Field: "layerwise.bundles", Ours: Number(all.Len()) + " of " + Number(all.Max()) +
				" in use, of which one peer has no more than it leaves to others,",
			Theirs: Number(max(1, n/int(all.Layers()))) + " more", Remedy: "retry when chunks are whole, or raise " +
				"layerwise.bundles of the receiver, or leave it out",
		}
	case !e.Pools.FitsShare(e.Pool, q.Class, q.Keys):
		return &effects.Why{
			Field: "peer_share_pct", Ours: Number(peers) + " of at most " + Number(e.Pool.MostOfOne()) + " of " +
				Number(e.Pool.Total()) + " pages in use by this sender,",
			Theirs: Number(n) + of, Remedy: "retry when its chunks were read, or raise peer_share_pct or " + e.Pool.Key() +
				" of the receiver",
		}
	case !e.Store.Room(n):
		return &effects.Why{
			Field: e.Pool.Key(), Ours: Number(e.Store.Entries()) + " of " + Number(e.Store.EntriesMax()) +
				" names of chunks in use, as many as the pool allows,",
			Theirs: Number(n) + of, Remedy: "retry later, or enlarge " + e.Pool.Key() + " of the receiver",
		}
	case uint32(n) <= e.Pool.Free():
		return &effects.Why{
			Field: e.Pool.Key(), Ours: Number(e.Pool.Free()) + " of " + Number(e.Pool.Total()) +
				" pages free, and kept for requests that came before,",
			Theirs: Number(n) + of, Remedy: "retry later, or enlarge " + e.Pool.Key() + " of the receiver",
		}
	}
	w := NoPages(&e.Env, n)
	w.Theirs = Number(n) + of
	return w
}

// NoPages returns the reason that there is no memory for a number of chunks.
func NoPages(v *env.Env, keys int) *effects.Why {
	return &effects.Why{
		Field: v.Pool.Key(), Ours: Number(v.Pool.Free()) + " of " + Number(v.Pool.Total()) + " pages free",
		Theirs: Number(keys) + " chunks", Remedy: "retry later, or enlarge " + v.Pool.Key() + " of the receiver",
	}
}

// UnknownLife returns the reason that a message is not from, or not for, an incarnation that completed a handshake
// here.
func UnknownLife() *effects.Why {
	return &effects.Why{Field: "kvf_inc with kvf_to", Ours: "no pair that shook hands"}
}

// Cut returns the reason that the link of a peer is lost, so that the peer has to shake hands again.
func Cut() *effects.Why {
	return &effects.Why{Field: "data plane", Theirs: "gone"}
}

// TooLate returns the reason that the remaining time of a read lease is too short.
func TooLate() *effects.Why {
	return &effects.Why{Field: "kvf_lease_ns", Ours: "over, or nearly,"}
}

// endings contains the reasons for the end of an offer, by code, where the code alone does not explain it.
//
//kvferry:table
var endings = [effects.CodeCount]effects.Why{
	effects.Cancelled:   {Field: "request", Ours: "abandoned, or its offer taken back"},
	effects.PeerLost:    {Field: "data plane", Theirs: "gone"},
	effects.Unreachable: {Field: "transfer_channel", Ours: "no way to the pages"},
	effects.Expired:     *TooLate(),
	effects.Faulted:     {Field: "data plane", Ours: "reported an error"},
	effects.Draining:    {Remedy: "use another receiver: this one is shutting down"},
}

// WhyEnded returns the reason that is given to the sender of an offer that ended with a code, and in the outcome of a
// fetch that read chunks of the offer.
func WhyEnded(code effects.Code) *effects.Why {
	w := effects.Why{}
	if int(code) < len(endings) {
		w = endings[code]
	}
	return &w
}

// Number formats a count for a message to people.
func Number[T int | uint32 | uint64](n T) string { return strconv.FormatUint(uint64(n), 10) }

// At returns the name of one entry of a list, such as "keys[3]".
func At(list string, i int) string { return list + "[" + strconv.Itoa(i) + "]" }

// GivenBack reports that a sender gave grants or offers back, with the reason that the sender stated. A code of 0 means
// that the sender stated no reason; then nothing is reported.
func (e *Env) GivenBack(
	class int, peer effects.Incarnation, n int, stage effects.Stage, code uint32, reason []byte,
) {
	if code == 0 {
		return
	}
	e.Out.Observe(effects.Observe{
		Fact: effects.FactGivenBack, Code: effects.CodeFromWire(code), Count: uint32(n), Peer: peer,
		Why: &effects.Why{Name: e.Name(class), Peer: peer, Stage: stage, Said: effects.Words(reason)},
	})
}

// PlainPeer returns the reason that kvferry and vanilla LMCache were connected with each other.
func PlainPeer() *effects.Why {
	return &effects.Why{
		Field: "kind", Ours: "kvferry (its planes let in who proves an identity)", Theirs: "lmcache",
		Remedy: "run kvferry at both ends, or lmcache at both",
	}
}

// Malformed reports that a peer's bytes are not a message that is valid here.
func (e *Env) Malformed(who Asker, stage effects.Stage, err error, body []byte) {
	why := link.Undecodable(err)
	if theirs := protocol.Speaker(body, &e.Cfg.Wire); theirs != "" {
		why = *PlainPeer()
		why.Theirs = theirs
	}
	why.Stage = stage
	e.Out.Observe(effects.Observe{Fact: effects.FactMalformed, Code: effects.Malformed, ID: uint64(who.Conn), Why: &why})
}

// OtherBatch returns the reason that a message has the operation number of another batch.
func OtherBatch() *effects.Why {
	return &effects.Why{
		Field: "kvf_op", Ours: "of another batch", Theirs: "of this one",
		Remedy: "send each batch under a number of its own",
	}
}

// NoRequest returns the reason that a command names no request.
func NoRequest() *effects.Why {
	return &effects.Why{Field: "Request", Theirs: "empty", Ours: "a request's id"}
}
