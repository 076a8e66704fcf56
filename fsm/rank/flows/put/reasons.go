package put

import (
	"strconv"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
)

// The functions of this file make the reasons that sources give for a failure, beside its code. A reason is made only
// where something failed.

// PeerReason returns the reason that a peer gave for a code: the peer's text, or that none was given.
func PeerReason(reason []byte) effects.Why {
	if len(reason) == 0 {
		return effects.Why{Field: "kvf_reason", Theirs: "not given"}
	}
	return effects.Why{Said: effects.SanitizeText(reason)}
}

func formatCount[T int | uint32 | uint64](n T) string { return strconv.FormatUint(uint64(n), 10) }

// AtStage returns w with its stage set to s.
func AtStage(s effects.Stage, w effects.Why) effects.Why {
	w.Stage = s
	return w
}

// RefusalReason returns the reason for a refusal with this text. A refusal without text, for example of a vanilla
// receiver, only tells that the allocation failed.
func RefusalReason(text string) effects.Why {
	if text == "" {
		return effects.Why{Field: "alloc_failed", Theirs: "true"}
	}
	return effects.Why{Said: text}
}

// isReceiverFull reports whether a code means that the receiver has nothing to give to any sender for the time being.
func isReceiverFull(code effects.Code) bool {
	return code == effects.NoMemory || code == effects.TooMany || code == effects.Draining
}

// isTemporary reports whether a code means that the receiver lacks something now but may have it later.
func isTemporary(code effects.Code) bool {
	return code == effects.NoMemory || code == effects.TooMany || code == effects.BackedOff
}

// NoReplyReason returns the reason for a put that got no reply in any of its attempts.
func NoReplyReason(e *flow.Env, code effects.Code) effects.Why {
	w := link.ConnEndedReason(code, e.Cfg.ReplyTimeout)
	if w.Ours != "" {
		w.Ours += ", " + formatCount(e.Cfg.AttemptsMax) + " times"
	}
	return w
}

// NoReplyCode returns the code that the engine receives when no reply arrived: Closed becomes Expired, because this
// rank closed the lane when the time was over.
func NoReplyCode(code effects.Code) effects.Code {
	if code == effects.Closed {
		return effects.Expired
	}
	return code
}
