package engine

import (
	"strconv"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
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

// IsCommand marks a command body.
func (*Reserve) IsCommand() {}

// IsCommand marks a command body.
func (*Release) IsCommand() {}

// TurnDown refuses a command at once, for a reason that has to do with nobody else.
func TurnDown(v *env.Env, t effects.Ticket, code effects.Code, why *effects.Why) {
	why.Stage = effects.StageCommand
	v.Out.Deliver(effects.Deliver{Ticket: t, Code: code, Why: why})
}

// Agree ends a command that asked for something that was done at once.
func Agree(v *env.Env, t effects.Ticket) { v.Out.Deliver(effects.Deliver{Ticket: t}) }

func number[T int | uint32 | uint64](n T) string { return strconv.FormatUint(uint64(n), 10) }
