// Package end tells receivers how requests ended at their sender. The word needs nothing but the request's id: no page,
// no key and no link. So it arrives where what was to be sent could not: at a receiver without memory, or of another
// layout.
//
// A Source may be relied on for this: each End has one outcome, within its patience; the word is repeated until the
// receiver has confirmed it, or patience is over; and a receiver that is away delays no other one's.
package end

import (
	"strconv"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
)

// End says how a request ended of which nothing more is put: with Code OK all of it was sent. A Get or Fetch at the
// receiver that waits for more of it ends. It is delivered with OK when the receiver has confirmed that, with NotSent
// if the engine there waits for other chunks, and with Expired if there was no confirmation within Patience.
type End struct {
	Request  []byte // its id, which no other attempt has
	Peer     engine.Peer
	Code     effects.Code
	Reason   []byte           // for people
	Patience effects.Duration // 0: the configured PutTimeout
}

// IsCommand marks a command body.
func (*End) IsCommand() {}

// Config is what a Source goes by, beside what all flows do.
type Config struct {
	EndsMax, PeersMax uint32
	Timeout           effects.Duration // of an End that says no Patience
}

// Need is that of so many ends for so many peers: of each end its deadline and its answer's, of each peer a connection
// and a pause.
func Need(ends, peers uint32) kernel.Need {
	return kernel.Need{
		Deadlines: int(ends) + 2*int(peers),
		Limits:    effects.Limits{Sends: 2 * int(peers), Commands: int(ends)},
	}
}

func number[T int | uint32](n T) string { return strconv.FormatUint(uint64(n), 10) }
