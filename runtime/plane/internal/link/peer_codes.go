package link

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
)

// The codes that a peer may use in answers to our requests. The remaining codes describe what this process did (our
// deadline, our cancel, our links); if a peer sends such a code, the code counts as Refused. An owner sends PeerLost
// when its stream to us has stalled; the link ends with that.
var (
	welcomeCodes = []effects.Code{effects.OK, effects.Refused, effects.Stale, effects.TooMany}
	doneCodes    = []effects.Code{
		effects.OK, effects.PeerLost, effects.Withdrawn, effects.Faulted, effects.Stale, effects.Refused,
		effects.TooMany, effects.TooLarge, effects.Mismatch, effects.Invalid, effects.NotFound, effects.Corrupt,
	}
)

// restrictCode returns code if allowed contains the code, and Refused otherwise.
func restrictCode(code effects.Code, allowed []effects.Code) effects.Code {
	if slices.Contains(allowed, code) {
		return code
	}
	return effects.Refused
}
