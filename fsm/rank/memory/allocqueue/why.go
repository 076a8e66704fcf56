package allocqueue

import (
	"strconv"

	"github.com/kvferry/kvferry/effects"
)

// TooMany says that a table has no more room for one peer.
func TooMany(table string, most int) *effects.Why {
	return &effects.Why{
		Field: table, Ours: strconv.Itoa(most) + ", of which one peer has no more than it leaves to others,",
		Theirs: "that many in use",
	}
}
