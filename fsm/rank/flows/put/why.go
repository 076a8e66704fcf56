package put

import (
	"strconv"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
)

// The functions of this file make the reasons that sources give for a failure, beside its code. A reason is made only
// where something failed.

// Said returns the reason that a peer gave for a code: the peer's text, or that none was given.
func Said(reason []byte) effects.Why {
	if len(reason) == 0 {
		return effects.Why{Field: "kvf_reason", Theirs: "not given"}
	}
	return effects.Why{Said: effects.Words(reason)}
}

func number[T int | uint32 | uint64](n T) string { return strconv.FormatUint(uint64(n), 10) }

// AtStage returns w with its stage set to s.
func AtStage(s effects.Stage, w effects.Why) effects.Why {
	w.Stage = s
	return w
}

// RefusalOf returns the reason for a refusal with this text. A refusal without text, for example of a vanilla receiver,
// only tells that the allocation failed.
func RefusalOf(words string) effects.Why {
	if words == "" {
		return effects.Why{Field: "alloc_failed", Theirs: "true"}
	}
	return effects.Why{Said: words}
}

// full reports whether a code means that the receiver has nothing to give to any sender for the time being.
func full(code effects.Code) bool {
	return code == effects.NoMemory || code == effects.TooMany || code == effects.Draining
}

// passing reports whether a code means that the receiver lacks something now but may have it later.
func passing(code effects.Code) bool {
	return code == effects.NoMemory || code == effects.TooMany || code == effects.BackedOff
}

// HungUp returns the reason for a put that got no reply in any of its attempts.
func HungUp(e *flow.Env, code effects.Code) effects.Why {
	w := link.HungUp(code, e.Cfg.ReplyTimeout)
	if w.Ours != "" {
		w.Ours += ", " + number(e.Cfg.AttemptsMax) + " times"
	}
	return w
}

// NoAnswer returns the code that the engine receives when no reply arrived: Closed becomes Expired, because this rank
// closed the lane when the time was over.
func NoAnswer(code effects.Code) effects.Code {
	if code == effects.Closed {
		return effects.Expired
	}
	return code
}
