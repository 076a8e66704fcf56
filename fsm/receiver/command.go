package receiver

import "github.com/kvferry/kvferry/effects"

// Get wants chunks by key, in order. It is delivered as soon as all are ready, or
// when Wait has passed (0: at once) with the usable prefix: Hits chunks in Pages,
// pinned until Release, and Code NotFound if that is not all of them. Nothing is
// pinned while it waits. With the Request that the chunks were sent for, the Get takes that
// request's claims with it and leaves those of others alone.
type Get struct {
	Request []byte // request id, as the sender knows it; may be empty
	Keys    [][]byte
	Wait    effects.Duration
}

// Contains asks how long the ready prefix of Keys is. It pins nothing.
type Contains struct{ Keys [][]byte }

// Release unpins what the Get with ticket Got gave. A second Release is NotFound.
type Release struct{ Got effects.Ticket }

// Abandon gives up the claims that requests with this id hold on ready chunks.
type Abandon struct{ Request []byte }

// Abort ends a waiting Get early.
type Abort struct{ Target effects.Ticket }

// IsCommand marks a command body.
func (*Get) IsCommand() {}

// IsCommand marks a command body.
func (*Contains) IsCommand() {}

// IsCommand marks a command body.
func (*Release) IsCommand() {}

// IsCommand marks a command body.
func (*Abandon) IsCommand() {}

// IsCommand marks a command body.
func (*Abort) IsCommand() {}
