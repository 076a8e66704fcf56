// Package recall reads back what a peer has: a prefill node asks a decode node which prefix of a request's chunks is
// still there, and reads it into pages of its own. The Source asks and reads; the Target looks up, pins, leases and
// answers, in one step.
//
// What a caller may rely on: a recall consumes nothing of the target's, whatever becomes of it. A page that is leased
// stays as it is, and is nobody else's, until its reader's word, the end of its time, or the proof of a revocation; no
// message lost, late or doubled changes that. A recall is one operation: asked again, it is answered with the same
// pages under the same lease. Its right counts from when the attempt was sent that was answered, which is before the
// lease began or was looked at (M4), so the clocks of the two need not be tied together.
//
// Keys go in and pages come out; the two messages are at the rim, in source_ask.go and target_answer.go alone.
package recall

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/flows/put"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/table"
)

// Peer is where somebody listens who may have the chunks: its handshakes and allocations, as for a put, and its
// questions.
type Peer struct {
	Host      string
	InitPort  uint16
	AllocPort uint16
	QueryPort uint16
}

func (p *Peer) where() link.Where {
	return link.Where{Host: p.Host, InitPort: p.InitPort, AllocPort: p.AllocPort}
}

// Recall reads the longest prefix of Keys that the peer has into Pages, chunk i into Pages[i], which are of a Reserve
// and in use by nothing else. They belong to the command until its Deliver (or Return, if that said Held). Hits says
// how many chunks came, and the Length of each page how many bytes; what the others hold now means nothing. All or none
// of the prefix comes.
type Recall struct {
	Peer     Peer
	Request  []byte // request id, for people at the other end; may be empty
	Keys     [][]byte
	Pages    []effects.Page
	Patience effects.Duration // 0: the configured default
}

// IsCommand marks a command body.
func (*Recall) IsCommand() {}

// Fits is how many of these chunks, from the first on, one Recall of such a request can take: no more than a command
// may have, their keys in one question, and their keys and places in its answer.
func Fits(cfg *flow.Config, request []byte, keys [][]byte) int {
	most := min(len(keys), int(cfg.BatchMax))
	ask, answer := put.HeadBytes+len(request), put.HeadBytes
	for i, key := range keys[:most] {
		ask += len(key) + put.KeyHeadBytes
		answer += len(key) + put.KeyHeadBytes + placeBytes
		if max(ask, answer) > cfg.Wire.MessageBytes {
			return i
		}
	}
	return most
}

// placeBytes is what an answer says of a chunk beside its key: an index, a generation, a length.
const placeBytes = 3 * 9

// Config is what a Source goes by, beside what all flows do.
type Config struct {
	RecallsMax   uint32           // in progress at a time
	Timeout      effects.Duration // of a recall that says none
	RequestIDMax uint32
}

// Kinds of completions and deadlines, of both ends.
const (
	kindAsk      uint8 = iota + 1 // a question about chunks
	kindDone                      // a word that a lease is finished with
	kindTransfer                  // a read
	kindOpen                      // the connection of a way
	timerRecall                   // when a recall must have ended
	timerAnswer                   // when an answer is overdue
	kindLease                     // a lease: its end by time, and the proof of its end
)

func sourceRef(kind uint8, h table.Handle) kernel.Ref {
	return kernel.Ref{Owner: kernel.OwnerRecallSource, Kind: kind, Subject: h}
}
