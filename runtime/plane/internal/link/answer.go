package link

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
)

// What a peer may say of what we asked it for. Other codes speak of our own doing, of our deadline, our cancel, our
// links; from a peer they become Refused. PeerLost an owner says whose stream to us has stalled: its link ends with
// that.
var (
	welcomeCodes = []effects.Code{effects.OK, effects.Refused, effects.Stale, effects.TooMany}
	doneCodes    = []effects.Code{
		effects.OK, effects.PeerLost, effects.Withdrawn, effects.Faulted, effects.Stale, effects.Refused,
		effects.TooMany, effects.TooLarge, effects.Mismatch, effects.Invalid, effects.NotFound,
	}
)

func heard(code effects.Code, may []effects.Code) effects.Code {
	if slices.Contains(may, code) {
		return code
	}
	return effects.Refused
}
