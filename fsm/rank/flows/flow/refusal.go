package flow

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
)

// IsPermanent reports whether a retry is useless, because the code means that the request can never be served.
func IsPermanent(code effects.Code) bool {
	return code == effects.Unsupported || code == effects.Mismatch || code == effects.Malformed ||
		code == effects.Invalid || code == effects.TooLarge || code == effects.Forbidden
}

// SendEmptyReply refuses a request of a vanilla peer, which knows none of our codes, with an empty frame, as
// LMCache-Ascend's receiver does when it cannot serve a request: the put at the sender then raises. The request is not
// answered with a failed allocation, because the sender would then still notify its proxy that everything was sent.
func SendEmptyReply(v *env.Env, to effects.Request) {
	v.Out.Reply(effects.Reply{Request: to, Body: v.Out.Cut(v.Out.Arena())})
}
