package layerwise

import (
	"strconv"

	"github.com/kvferry/kvferry/effects"
)

// Reasons for failures, in addition to the code. Each function is called only when something failed.

func full(what string, most uint32) *effects.Why {
	return &effects.Why{
		Field: "layerwise." + what, Ours: number(most) + ", and as many are in progress",
		Remedy: "retry when one has ended, or raise layerwise." + what,
	}
}

func peersFull(most uint32) *effects.Why {
	return &effects.Why{
		Field: "tables.peers", Ours: number(most) + ", and all of them are in use",
		Remedy: "retry when a link has ended, or raise tables.peers",
	}
}

func noRun(request []byte) *effects.Why {
	return &effects.Why{Field: "Request", Theirs: effects.Words(request), Ours: "one that has begun and has not finished"}
}

func begun(request []byte) *effects.Why {
	return &effects.Why{Field: "Request", Theirs: effects.Words(request), Ours: "one that has not begun"}
}

func invalid(field, theirs, ours string) *effects.Why {
	return &effects.Why{Field: field, Theirs: theirs, Ours: ours}
}

func outOfTime(r *run) *effects.Why {
	return &effects.Why{
		Field: "Patience", Ours: r.patience.String(), Theirs: number(r.unconfirmed()) + " chunks not whole",
	}
}

func number[T int | uint32 | uint64](n T) string { return strconv.FormatUint(uint64(n), 10) }

func at(list string, i int) string { return list + "[" + strconv.Itoa(i) + "]" }
