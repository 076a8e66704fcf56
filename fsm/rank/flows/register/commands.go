package register

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/memory/geometry"
)

// Peer is where a rank of a producer listens.
type Peer struct {
	Host     string
	InitPort uint16 // for hellos
	Port     uint16 // for registrations
}

// Register has blocks of a request written by its producer. Its outcome is OK when all of them are, from every rank of
// the producer's. The blocks are ours from this step on, until the outcome, or until Return if it says Held.
type Register struct {
	Request  []byte // the consumer's own name of it
	Transfer []byte // what the router calls the transfer at both ends; empty: they are found by the request's name
	Engine   []byte // of the producer; empty: whatever engine is there
	// Producers are its ranks that have a part of the blocks, in the order of geometry.Producers.
	Producers     []Peer
	Ranks, Stages uint32 // of the producer, all in all
	Blocks        []geometry.Blocks
	Patience      effects.Duration // 0: the configured default
}

// Finished lends the blocks of a request that is computed to whoever registers for it. Its outcome is OK when each rank
// of the consumer's that has a part of them was written to; Expired when the lease was over first. Skipped counts a
// request that nobody needs.
type Finished struct {
	Request, Transfer []byte
	Blocks            []geometry.Blocks
	Lease             effects.Duration // 0: the configured default
}

// Aborted says that a request will not come, or that what is lent for it is not to be written any more. Registrations
// for it are answered so, for a while also those that come later. Its outcome comes at once.
type Aborted struct{ Request, Transfer []byte }

// Expect keeps a request at its producer until it is registered for: its ranks are told every interval, and make its
// lease longer. It ends when a Register of that name comes, by its Abort, or when its time is over.
type Expect struct {
	Request, Transfer []byte
	Producers         []Peer
	Patience          effects.Duration
}

// NotNeeded tells a producer that nobody will register for a request, so that it gives its blocks back. It ends when
// each rank has heard, or cannot be told.
type NotNeeded struct {
	Request, Transfer []byte
	Producers         []Peer
	Patience          effects.Duration
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
