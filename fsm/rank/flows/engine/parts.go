package engine

import "github.com/kvferry/kvferry/effects"

// parts records the Puts of one batch that follow the first of them, for which there is room. These Puts arrive
// directly after the first Put or not at all: if another batch begins before, the room for them is lost.
type parts struct {
	first effects.Ticket
	left  uint32
}

// mayFollow reports whether there is room for a Put, and for all Puts that are to follow it, besides the open ones.
func (x *parts) mayFollow(c *Put, open, most int) bool {
	if c.First != 0 {
		return x.first == c.First && x.left > 0
	}
	return uint64(open)+uint64(c.Follow) < uint64(most)
}

func (x *parts) follow(t effects.Ticket, c *Put) {
	if c.First != 0 {
		x.left--
		return
	}
	*x = parts{first: t, left: c.Follow}
}
