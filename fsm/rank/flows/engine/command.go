package engine

import (
	"strconv"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/protocol"
)

// Reserve asks for Count pages of the pool, all or none. Reservations wait first in, first out, until Timeout has
// passed (0: the configured default). The pages count for Tenant, the tenant of the chunks that they are for; while its
// share keeps a reservation waiting, reservations for other tenants are served. The Deliver of a Reserve gives the pages,
// which belong to the engine until Release.
type Reserve struct {
	Count   uint32
	Timeout effects.Duration
	Tenant  effects.Tenant
}

// Release gives back everything that the Reserve with ticket Reserved gave. If a Put or a Share still uses a page, the
// Release is refused as Invalid. A second Release is NotFound.
type Release struct{ Reserved effects.Ticket }

// Put pushes one batch of chunks to a peer, or offers the batch: chunk i has key Keys[i] and lies in Pages[i], where
// Length is the number of valid bytes. The pages belong to the command until Deliver (or until the effect Return, if
// the Deliver is Held), and then to the engine again. With offload the Return mostly comes first, when the chunks have
// been copied.
type Put struct {
	Peer Peer
	// Request is the request id, for the proxy. The length is bounded. An id is required if Last is set.
	Request         []byte
	Keys            [][]byte
	Pages           []effects.Page
	Layout          protocol.Layout // of a full chunk
	LastChunkTokens uint32          // tokens in the last chunk of this batch
	// Last marks the last batch of the request: the proxy is notified when all batches of the request have ended.
	Last    bool
	Timeout effects.Duration
	// A batch that is too large for one Put is given in several Puts, directly after each other, each with a separate
	// outcome. Follow of the first Put is the number of further Puts, and First of each further Put is the ticket of
	// the first. If there is no room for all of these Puts, each is refused as TooMany, so that no part of the batch is
	// sent without the rest.
	Follow uint32
	First  effects.Ticket
	// Trace is the span of the put. The peer is told its context.
	Trace effects.Trace
}

// Peer is the address at which a receiver listens.
type Peer struct {
	Host      string
	InitPort  uint16
	AllocPort uint16
}

// Abort ends the command with the ticket Target early: a Put, a Fetch, or a Reserve or a Get that waits. Abort delivers
// OK if there was something to end. The aborted command has its own Deliver.
type Abort struct{ Target effects.Ticket }

// IsCommand marks Reserve as a command body.
func (*Reserve) IsCommand() {}

// IsCommand marks Release as a command body.
func (*Release) IsCommand() {}

// IsCommand marks Put as a command body.
func (*Put) IsCommand() {}

// IsCommand marks Abort as a command body.
func (*Abort) IsCommand() {}

// RefuseCommand delivers a refusal of a command at once. If why names no stage, the stage is the command itself: no
// peer has to do with the refusal.
func RefuseCommand(v *env.Env, t effects.Ticket, code effects.Code, why *effects.Why) {
	if why.Stage == effects.StageNone {
		why.Stage = effects.StageCommand
	}
	v.Out.Deliver(effects.Deliver{Ticket: t, Code: code, Why: why})
}

// DeliverOK delivers OK for a command that was carried out at once.
func DeliverOK(v *env.Env, t effects.Ticket) { v.Out.Deliver(effects.Deliver{Ticket: t}) }

func formatCount[T int | uint32 | uint64](n T) string { return strconv.FormatUint(uint64(n), 10) }
