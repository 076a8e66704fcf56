package layerwise

import (
	"strconv"

	"github.com/kvferry/kvferry/effects"
)

// Reasons for failures, in addition to the code. Each function is called only when something failed.

func tableFullReason(table string, limit uint32) *effects.Why {
	return &effects.Why{
		Field: "layerwise." + table, Ours: formatCount(limit) + ", and as many are in progress",
		Remedy: "retry when one has ended, or raise layerwise." + table,
	}
}

func peersFullReason(limit uint32) *effects.Why {
	return &effects.Why{
		Field: "tables.peers", Ours: formatCount(limit) + ", and all of them are in use",
		Remedy: "retry when a link has ended, or raise tables.peers",
	}
}

func noRunReason(request []byte) *effects.Why {
	return &effects.Why{Field: "Request", Theirs: effects.SanitizeText(request), Ours: "a request that has begun and has not finished"}
}

func alreadyBegunReason(request []byte) *effects.Why {
	return &effects.Why{Field: "Request", Theirs: effects.SanitizeText(request), Ours: "a request that has not begun"}
}

func invalidReason(field, theirs, ours string) *effects.Why {
	return &effects.Why{Field: field, Theirs: theirs, Ours: ours}
}

func timeoutReason(r *run) *effects.Why {
	return &effects.Why{
		Field: "Timeout", Ours: r.timeout.String(), Theirs: formatCount(r.countUnconfirmed()) + " chunks not whole",
	}
}

func formatCount[T int | uint32 | uint64](n T) string { return strconv.FormatUint(uint64(n), 10) }

func entryName(list string, i int) string { return list + "[" + strconv.Itoa(i) + "]" }
