package allocqueue

import (
	"strconv"

	"github.com/kvferry/kvferry/effects"
)

// TooMany returns the reason for a refusal because the share of a class in a table is used up.
func TooMany(table string, most int) *effects.Why {
	return &effects.Why{
		Field: table, Ours: strconv.Itoa(most) + ", of which one peer has no more than it leaves to others,",
		Theirs: "that many in use",
	}
}
