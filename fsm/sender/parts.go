package sender

import "github.com/kvferry/kvferry/effects"

// parts are the puts of one batch that follow the first of them, for which there is room. They come directly after it, or
// not at all: what another batch begins before they came takes their room.
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
	if s.cfg.Pull {
		return pullFits(&s.cfg, keys)
	}
	return pushFits(&s.cfg, keys)
}

// pushFits counts the chunks whose keys fit an AllocRequest, and whose pages the answer to it.
func pushFits(cfg *Config, keys [][]byte) int {
	most := min(len(keys), int(cfg.BatchMax))
	ask, answer := headBytes, headBytes
	for i, key := range keys[:most] {
		ask += len(key) + keyHeadBytes
		answer += placeBytes
		if max(ask, answer) > cfg.Wire.MessageBytes {
			return i
		}
	}
	return most
}

// pullFits counts the chunks that can be leased at a time, and whose keys and pages fit one offer.
func pullFits(cfg *Config, keys [][]byte) int {
	most := min(len(keys), int(cfg.BatchMax), int(cfg.HighWater))
	offer := headBytes
	for i, key := range keys[:most] {
		offer += len(key) + keyHeadBytes + placeBytes
		if offer > cfg.Wire.MessageBytes {
			return i
		}
	}
	return most
}
