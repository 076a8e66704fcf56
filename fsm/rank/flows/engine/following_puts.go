package engine

import "github.com/kvferry/kvferry/effects"

// followingPuts records the Puts of one batch that follow the first of them, for which there is room. These Puts arrive
// directly after the first Put or not at all: if another batch begins before, the room for them is lost.
type followingPuts struct {
	first     effects.Ticket
	remaining uint32
}

// mayFollow reports whether there is room for a Put, and for all Puts that are to follow it, besides the open ones.
func (x *followingPuts) mayFollow(c *Put, open, limit int) bool {
	if c.First != 0 {
		return x.first == c.First && x.remaining > 0
	}
	return uint64(open)+uint64(c.Follow) < uint64(limit)
}

func (x *followingPuts) recordPut(t effects.Ticket, c *Put) {
	if c.First != 0 {
		x.remaining--
		return
	}
	*x = followingPuts{first: t, remaining: c.Follow}
}
