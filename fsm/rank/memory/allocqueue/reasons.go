package allocqueue

import (
	"strconv"

	"github.com/kvferry/kvferry/effects"
)

// ShareFullReason returns the reason for a refusal because the share of a class in a table is used up.
func ShareFullReason(table string, limit int) *effects.Why {
	return &effects.Why{
		Field: table, Ours: strconv.Itoa(limit) + ", of which one peer has no more than it leaves to others,",
		Theirs: "that many in use",
	}
}
