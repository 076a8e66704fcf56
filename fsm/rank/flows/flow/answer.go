package flow

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
)

// Never says whether asking again cannot help, because what was asked for can never be carried.
func Never(code effects.Code) bool {
	return code == effects.Unsupported || code == effects.Mismatch || code == effects.Malformed ||
		code == effects.Invalid || code == effects.TooLarge
}

// RefuseForGood answers who knows none of our codes with an empty frame, as LMCache-Ascend's receiver does whatever
// it cannot serve: the put there raises. After an allocation that failed the sender tells its proxy all the same
// that everything was sent.
func RefuseForGood(v *env.Env, to effects.Request) {
	v.Out.Reply(effects.Reply{Request: to, Body: v.Out.Cut(v.Out.Arena())})
}
