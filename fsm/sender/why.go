package sender

import (
	"strconv"

	"github.com/kvferry/kvferry/effects"
)

// What this room says of a failure, beside its code. All of it is made where something failed.

// said is what a peer's code says beside itself: its words, or that it has none.
func said(reason []byte) effects.Why {
	if len(reason) == 0 {
		return effects.Why{Field: "kvf_reason", Theirs: "not given"}
	}
	return effects.Why{Said: effects.Words(reason)}
}

func where(p Peer) string {
	return effects.Words([]byte(p.Host)) + ":" + number(uint32(p.InitPort)) + "," + number(uint32(p.AllocPort))
}

func number[T int | uint32 | uint64](n T) string { return strconv.FormatUint(uint64(n), 10) }

func at(list string, i int) string { return list + "[" + strconv.Itoa(i) + "]" }

func atStage(s effects.Stage, w effects.Why) effects.Why {
	w.Stage = s
	return w
}

// refusalOf is what a refusal says. One without words, as of a plain receiver, says no more than that it is one.
func refusalOf(words string) effects.Why {
	if words == "" {
		return effects.Why{Field: "alloc_failed", Theirs: "true"}
	}
	return effects.Why{Said: words}
}

// full says whether an answer means that the receiver has nothing to give, to anybody, for the time being.
func full(code effects.Code) bool {
	return code == effects.NoMemory || code == effects.TooMany || code == effects.Draining
}
