package sim

import (
	"slices"
	"strconv"
	"strings"

	"github.com/kvferry/kvferry/effects"
)

// numberAfter is the number of what has no other name, after a word that says what it is.
func numberAfter(name, word string) (uint8, bool) {
	digits, ok := strings.CutPrefix(name, word)
	n, err := strconv.ParseUint(digits, 10, 8)
	return uint8(n), ok && err == nil
}

// serves says whether a node listens on a channel.
func (n *node) serves(ch effects.Channel) bool { return slices.Contains(n.listens, ch) }
