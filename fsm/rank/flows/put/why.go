package put

import (
	"strconv"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
)

// What sources say of a failure, beside its code. All of it is made where something failed.

// Said is what a peer's code says beside itself: its words, or that it has none.
func Said(reason []byte) effects.Why {
	if len(reason) == 0 {
		return effects.Why{Field: "kvf_reason", Theirs: "not given"}
	}
	return effects.Why{Said: effects.Words(reason)}
}

func number[T int | uint32 | uint64](n T) string { return strconv.FormatUint(uint64(n), 10) }

// AtStage is w, at a stage.
func AtStage(s effects.Stage, w effects.Why) effects.Why {
	w.Stage = s
	return w
}

// RefusalOf is what a refusal says. One without words, as of a plain receiver, says no more than that it is one.
func RefusalOf(words string) effects.Why {
	if words == "" {
		return effects.Why{Field: "alloc_failed", Theirs: "true"}
	}
	return effects.Why{Said: words}
}

// full says whether an answer means that the receiver has nothing to give, to anybody, for the time being.
func full(code effects.Code) bool {
	return code == effects.NoMemory || code == effects.TooMany || code == effects.Draining
}

// passing says whether what a receiver lacked may be there later.
func passing(code effects.Code) bool {
	return code == effects.NoMemory || code == effects.TooMany || code == effects.BackedOff
}

// HungUp is what is said of a put whose question got no answer, as often as it was asked.
func HungUp(e *flow.Env, code effects.Code) effects.Why {
	w := link.HungUp(code, e.Cfg.ReplyTimeout)
	if w.Ours != "" {
		w.Ours += ", " + number(e.Cfg.AttemptsMax) + " times"
	}
	return w
}

// NoAnswer names the cause for the engine: we closed the lane because time was up.
func NoAnswer(code effects.Code) effects.Code {
	if code == effects.Closed {
		return effects.Expired
	}
	return code
}
