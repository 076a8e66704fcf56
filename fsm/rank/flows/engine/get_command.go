package engine

import "github.com/kvferry/kvferry/effects"

// Get wants chunks by key, in order. It is delivered as soon as all are ready, or
// when Wait has passed (0: at once) with the usable prefix: Hits chunks in Pages,
// pinned until Release, and Code NotFound if that is not all of them: Lapsed if the first that is missing was here for
// this request, and was kept for ClaimTTL in vain. Nothing is
// pinned while it waits.
//
// With the Request that the chunks were sent for, the Get consumes: of each chunk that it gives it ends the claim of
// that request, or where it has none the oldest claim that names no request (chunks of plain senders). It leaves those
// of others alone. A chunk leaves when it has no claim and no pin. Without a Request it consumes nothing.
type Get struct {
	Request []byte // request id, as the sender knows it; empty: a look
	Keys    [][]byte
	Wait    effects.Duration
	// Layered: the chunks came layer by layer (Config.Layers). Each has a page for every layer, all of them in order, as
	// long as each other; such chunks are told apart from those of one page, also if their keys are the same.
	Layered bool
}

// Fetch wants chunks by key, in order, handed to the engine's device code batch by batch (effects.Scatter),
// from here or from the senders that offered them. It begins as soon as all of them are known. Its one outcome
// is that of all of it: OK with all Hits, or else the engine has to compute the request. Patience bounds it
// as a whole (0: the configured FetchTimeout, which is also the most). With the Request that the chunks were offered or
// sent for, they are consumed, as by a Get; without, or where another's are read, offers and claims stay.
type Fetch struct {
	Request  []byte // request id, as the sender knows it; may be empty
	Keys     [][]byte
	Patience effects.Duration
}

// Contains asks how long the prefix of Keys is that a Fetch could have now. It pins and consumes nothing, so it names
// no request. Chunks that came layer by layer are none of a Fetch's: a Get without Request and Wait looks for those.
type Contains struct{ Keys [][]byte }

// Unpin unpins what the Get with ticket Got gave, and consumes nothing: the Get did. A second Release is NotFound.
type Unpin struct{ Got effects.Ticket }

// Abandon cancels what is here of requests with this id: claims on ready chunks, offers that were not read, what is
// being written or read for them and what waits for memory. Their senders learn of it, also those that come within a
// while.
//
// With a Reason the sender of the request is told it with the next answer to a word of its how a request ended: so both
// ends know why what was sent is of no use.
type Abandon struct {
	Request []byte
	Reason  []byte // for people; may be empty
}

// GiveUp does for chunks of a request what a Fetch does that begins and fails: claims of the request on those that
// are here end, and so do offers of those that are elsewhere, whose senders learn of it. It is for the later parts of
// a fetch that was too large for one command. Reads and Gets in progress go on, and what comes later is kept, as it is
// not after an Abandon.
type GiveUp struct {
	Request []byte
	Keys    [][]byte
}

// IsCommand marks a command body.
func (*Get) IsCommand() {}

// IsCommand marks a command body.
func (*Fetch) IsCommand() {}

// IsCommand marks a command body.
func (*Contains) IsCommand() {}

// IsCommand marks a command body.
func (*Unpin) IsCommand() {}

// IsCommand marks a command body.
func (*Abandon) IsCommand() {}

// IsCommand marks a command body.
func (*GiveUp) IsCommand() {}
