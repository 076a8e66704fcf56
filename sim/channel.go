package sim

import (
	"slices"
	"strconv"
	"strings"

	"github.com/kvferry/kvferry/effects"
)

// order says how messages go on a channel.
type order uint8

const (
	lockstep order = iota // one request at a time, each with one answer
	oneWay                // nobody answers
)

// channels are those that have a name in plans and an order of their own, by number. Any other is a lockstep one,
// called by its number.
//
//kvferry:table
var channels = [...]struct {
	name  string
	order order
}{
	effects.ChannelInit:  {"init", lockstep},
	effects.ChannelAlloc: {"alloc", lockstep},
	effects.ChannelProxy: {"proxy", oneWay},
	effects.ChannelDone:  {"done", oneWay},
}

const unnamedChannel = "channel"

// orderOf says how messages go on ch.
func orderOf(ch effects.Channel) order {
	if int(ch) < len(channels) {
		return channels[ch].order
	}
	return lockstep
}

// channelName is how plans call ch.
func channelName(ch effects.Channel) string {
	if int(ch) < len(channels) && channels[ch].name != "" {
		return channels[ch].name
	}
	return unnamedChannel + strconv.Itoa(int(ch))
}

// channelNamed is its opposite.
func channelNamed(name string) (effects.Channel, bool) {
	for ch := range channels {
		if channels[ch].name == name && name != "" {
			return effects.Channel(ch), true
		}
	}
	ch, ok := numberAfter(name, unnamedChannel)
	return effects.Channel(ch), ok && channelName(effects.Channel(ch)) == name
}

// numberAfter is the number of what has no other name, after a word that says what it is.
func numberAfter(name, word string) (uint8, bool) {
	digits, ok := strings.CutPrefix(name, word)
	n, err := strconv.ParseUint(digits, 10, 8)
	return uint8(n), ok && err == nil
}

// serves says whether a node listens on a channel.
func (n *node) serves(ch effects.Channel) bool { return slices.Contains(n.listens, ch) }
