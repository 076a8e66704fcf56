package register

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/memory/geometry"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
)

// Peer is the address of a producer rank.
type Peer struct {
	Host     string
	InitPort uint16 // for hellos
	Port     uint16 // for registrations
}

func (p *Peer) addr() link.PeerAddr {
	return link.PeerAddr{Host: p.Host, InitPort: p.InitPort, AllocPort: p.Port}
}

// Register asks the producer of a request to write the request's blocks. The outcome is OK when all blocks were
// written by all producer ranks. The blocks belong to the agent from this step on, until the outcome, or until the
// Return if the outcome says Held.
type Register struct {
	Request []byte // the consumer's name of the request
	// Transfer is the router's name of the transfer at both ends; empty: the ends are matched by the name of the
	// request.
	Transfer []byte
	// Engine is the id of the producer's engine; empty: any engine at that address.
	Engine []byte
	// Producers are the producer ranks that have a part of the blocks, in the order of geometry.ProducersOf.
	Producers []Peer
	// Ranks and Stages are the total numbers of the producer's ranks and stages.
	Ranks, Stages uint32
	Blocks        []geometry.Blocks
	Timeout       effects.Duration // 0: the configured default
	Trace         effects.Trace    // the span of the reception, of which the producers are told; zero: not traced
}

// Finished lends the blocks of a computed request to the consumer that registers for the request. The outcome is OK
// when each consumer rank with a part of the blocks was written to, and Expired if the lease was over before. Skipped
// counts a request that nobody needs.
type Finished struct {
	Request, Transfer []byte
	Blocks            []geometry.Blocks
	Lease             effects.Duration // 0: the configured default
	Trace             effects.Trace    // the span of the loan; zero: not traced
}

// Aborted says that a request will not be finished, or that its lent blocks must not be written any more.
// Registrations for the request are answered accordingly, and later registrations for some time as well. The outcome
// is delivered at once.
type Aborted struct{ Request, Transfer []byte }

// Expect keeps a request at its producer until the request is registered: the producer ranks receive a heartbeat
// every interval, which extends the lease. Expect ends when a Register of that name arrives, by an Abort, or at the
// deadline.
type Expect struct {
	Request, Transfer []byte
	Producers         []Peer
	Timeout           effects.Duration
}

// NotNeeded tells a producer that nobody will register for a request, so that the producer returns the blocks to its
// engine. The command ends when each rank was told, or cannot be told.
type NotNeeded struct {
	Request, Transfer []byte
	Producers         []Peer
	Timeout           effects.Duration
}

// IsCommand marks a command body.
func (*Register) IsCommand() {}

// IsCommand marks a command body.
func (*Finished) IsCommand() {}

// IsCommand marks a command body.
func (*Aborted) IsCommand() {}

// IsCommand marks a command body.
func (*Expect) IsCommand() {}

// IsCommand marks a command body.
func (*NotNeeded) IsCommand() {}
