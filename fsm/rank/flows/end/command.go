// Package end notifies receivers of how requests ended at their sender. The end-of-request message needs only the
// id of the request: no page, no key and no link. So the message arrives where the chunks themselves could not be
// sent: at a receiver without memory, or with another layout.
//
// The [Source] runs at the sender. It sends the message for each [End] command and repeats the message until the
// receiver has confirmed. The [Target] runs at the receiver. It records the request outcome in the table of
// requests, which ends the Gets and Fetches that wait for more of the request, and confirms.
//
// A caller of a Source may rely on this: each End has one outcome, within its timeout. The message is repeated
// until the receiver has confirmed it or the timeout is over. A receiver that does not answer delays no message
// to another receiver.
//
// Example of a request that failed at its sender before all chunks were sent:
//
//	engine   ── End(request r, failed) ────► source
//	source   ── end of r ──────────────────► target   the reply is lost
//	source   ── end of r, after a pause ───► target   waiting Gets of r end
//	target   ── confirmed ─────────────────► source
//	source   ── Deliver(OK) ───────────────► engine
package end

import (
	"strconv"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
)

// End is the command to report how a request ended of which no more chunks will be put. With Code OK all chunks
// were sent. A Get or Fetch at the receiver that waits for more of the request ends. The command is delivered
// with OK when the receiver has confirmed, with NotSent if the engine there waits for chunks that were not among
// those sent, and with Expired if no confirmation arrived within Timeout.
type End struct {
	Request []byte         // the id of the request, which no other attempt uses
	Tenant  effects.Tenant // the tenant of the request's chunks
	Peer    engine.Peer
	Code    effects.Code
	Reason  []byte           // a text for logs
	Timeout effects.Duration // how long the message is repeated; 0: the configured PutTimeout
}

// IsCommand marks an End as a command body.
func (*End) IsCommand() {}

// Config is the configuration of a Source.
type Config struct {
	EndsMax, PeersMax uint32
	Timeout           effects.Duration // the time limit of an End without Timeout
}

// Need returns the resources for the given number of Ends to the given number of peers: each End has a deadline,
// and each peer has a connection, a deadline for the reply and a pause.
func Need(ends, peers uint32) kernel.Need {
	return kernel.Need{
		Deadlines: int(ends) + 2*int(peers),
		Limits:    effects.Limits{Sends: 2 * int(peers), Commands: int(ends)},
	}
}

func formatCount[T int | uint32](n T) string { return strconv.FormatUint(uint64(n), 10) }
