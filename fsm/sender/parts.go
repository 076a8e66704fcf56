package sender

import "github.com/kvferry/kvferry/effects"

// parts are the puts of one batch that follow the first of them, for which there is room. They come directly after it, or
// not at all: what another batch begins before they came takes their room.
type parts struct {
	first effects.Ticket
	left  uint32
}

// mayFollow says whether there is room for a put, and for all that are to follow it.
func (s *Sender) mayFollow(c *Put) bool {
	if c.First != 0 {
		return s.parts.first == c.First && s.parts.left > 0
	}
	return uint64(s.puts.Len())+uint64(c.Follow) < uint64(s.puts.Max())
}

func (s *Sender) follow(t effects.Ticket, c *Put) {
	if c.First != 0 {
		s.parts.left--
		return
	}
	s.parts = parts{first: t, left: c.Follow}
}

// What a message says of each chunk besides its key's bytes: the key's head, and where a page is, in an offer or in the
// answer to an AllocRequest. Beside that it has at most headBytes.
const (
	keyHeadBytes = 3
	placeBytes   = 38 + 9 + 9 // a UUID as text, an index, a generation
	headBytes    = 1024
)

// Fits is how many of these chunks, from the first on, one put can take. No more than BatchMax; and messages have to be
// short enough, as what the receiver accepts is taken to be what we do.
func (s *Sender) Fits(keys [][]byte) int {
	most := min(len(keys), int(s.cfg.BatchMax))
	if s.cfg.Pull {
		most = min(most, int(s.cfg.HighWater))
	}
	ask, places := headBytes, headBytes
	for i, key := range keys[:most] {
		ask += len(key) + keyHeadBytes
		places += placeBytes
		if s.cfg.Pull && ask+places-headBytes > s.cfg.Wire.MessageBytes || max(ask, places) > s.cfg.Wire.MessageBytes {
			return i
		}
	}
	return most
}
