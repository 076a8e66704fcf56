package engine

import "github.com/kvferry/kvferry/effects"

// parts are the puts of one batch that follow the first of them, for which there is room. They come directly after it,
// or not at all: what another batch begins before they came takes their room.
type parts struct {
	first effects.Ticket
	left  uint32
}

// mayFollow says whether there is room for a put, and for all that are to follow it, beside those that are open.
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
