package engine

import (
	"strconv"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/protocol"
)

// Reserve asks for Count pages of the pool, all or none, waiting first in, first
// out until Patience has passed (0: the configured default). Its Deliver gives
// the pages, which the engine owns until Release.
type Reserve struct {
	Count    uint32
	Patience effects.Duration
}

// Release gives back everything that the Reserve with ticket Reserved gave. Pages
// that a Put still uses are refused with Invalid; a second Release is NotFound.
type Release struct{ Reserved effects.Ticket }

// Put pushes one batch, or offers it: chunk i has key Keys[i] and lies in Pages[i], whose Length
// says how many bytes of it are valid. The pages belong to the command until its
// Deliver (or Return, if that said Held), then to the engine again. With offload their Return
// mostly comes first: when the chunks are copied.
type Put struct {
	Peer            Peer
	Request         []byte // request id, for the proxy; bounded, not empty if Last
	Keys            [][]byte
	Pages           []effects.Page
	Layout          protocol.Layout // of a full chunk
	LastChunkTokens uint32          // tokens in the last chunk of this batch
	Last            bool            // the request's last batch: the proxy is told when all its batches ended
	Patience        effects.Duration
	// A batch that is too large for one put is put in parts, each a Put of its own with its own outcome, that are
	// given directly one after the other: the first says how many follow, and each of those which was the first.
	// Where there is no room for all of them each is refused as TooMany, so that none goes without the others.
	Follow uint32
	First  effects.Ticket
}

// Peer is where a receiver listens.
type Peer struct {
	Host      string
	InitPort  uint16
	AllocPort uint16
}

// Abort ends the command with this ticket early: a Put, a Reserve or a Get that waits, a Fetch. It delivers OK if there
// was something to end; the aborted command has its own Deliver.
type Abort struct{ Target effects.Ticket }

// IsCommand marks a command body.
func (*Reserve) IsCommand() {}

// IsCommand marks a command body.
func (*Release) IsCommand() {}

// IsCommand marks a command body.
func (*Put) IsCommand() {}

// IsCommand marks a command body.
func (*Abort) IsCommand() {}

// TurnDown refuses a command at once, for a reason that has to do with nobody else.
func TurnDown(v *env.Env, t effects.Ticket, code effects.Code, why *effects.Why) {
	if why.Stage == effects.StageNone {
		why.Stage = effects.StageCommand
	}
	v.Out.Deliver(effects.Deliver{Ticket: t, Code: code, Why: why})
}

// Agree ends a command that asked for something that was done at once.
func Agree(v *env.Env, t effects.Ticket) { v.Out.Deliver(effects.Deliver{Ticket: t}) }

func number[T int | uint32 | uint64](n T) string { return strconv.FormatUint(uint64(n), 10) }
