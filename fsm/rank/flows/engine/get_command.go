package engine

import "github.com/kvferry/kvferry/effects"

// Get requests chunks by key, in order. Its outcome is delivered as soon as all chunks are ready or, when Wait has
// passed (0: at once), with the usable prefix: Hits chunks in Pages, pinned until Unpin. If these are not all chunks,
// the code is NotFound, or Lapsed if the first missing chunk was here for this request and expired after ClaimTTL
// without being read. If the sender has reported the end of the request, the code is SenderFailed or NotSentReason
// instead of NotFound. Nothing is pinned while a Get waits.
//
// With the Request for which the chunks were sent, the Get consumes chunks: for each chunk that the Get returns, the
// Get ends the claim of that request or, if the request has none, the oldest claim that names no request (chunks of
// vanilla senders). The claims of other requests stay. A chunk leaves the store when it has no claim and no pin.
// Without a Request the Get consumes nothing.
type Get struct {
	Request []byte // request id, as the sender knows it; empty: consume nothing
	Keys    [][]byte
	Wait    effects.Duration
	// Layered means that the chunks arrive layer by layer (Config.Layers). Each chunk has one page for every layer, in
	// order and all of the same length. These chunks are different from chunks of one page, even if their keys are the
	// same.
	Layered bool
	// Realm is the trust domain whose chunks the Get accepts: chunks that a peer of the domain sent under these keys. A
	// chunk of another domain is as absent as one that nobody sent. Zero: the domain of this node.
	Realm effects.Realm
}

// Fetch requests chunks by key, in order, which are given to the engine's device code batch by batch (effects.Scatter).
// The chunks are read here or from the senders that offered them. The Fetch begins as soon as all chunks are known. A
// Fetch has one outcome for all chunks: OK with all Hits, or else the engine has to compute the request. Timeout
// bounds the whole Fetch (0: the configured FetchTimeout, which is also the maximum). With the Request for which the
// chunks were offered or sent, the chunks are consumed, as by a Get. Without a Request, or where chunks of another
// request are read, offers and claims stay.
type Fetch struct {
	Request []byte // request id, as the sender knows it; may be empty
	Keys    [][]byte
	Timeout effects.Duration
	Realm   effects.Realm // the trust domain whose chunks the Fetch accepts, as for a Get
}

// Contains asks for the length of the prefix of Keys that a Fetch could have now. Contains pins and consumes nothing,
// and therefore names no request. A Fetch cannot have chunks that arrived layer by layer; to look for such chunks, use
// a Get without Request and Wait.
type Contains struct {
	Keys  [][]byte
	Realm effects.Realm // the trust domain whose chunks count, as for a Get
}

// Unpin ends the pins of the Get with ticket Got. Unpin consumes nothing, because the Get did. A second Unpin is
// NotFound.
type Unpin struct{ Got effects.Ticket }

// Abandon cancels everything here that belongs to requests with this id: claims on ready chunks, offers that were not
// read, fills and reads in flight, and pending requests. The senders are notified, also senders with messages that
// arrive within AbandonTTL afterwards.
//
// With a Reason, the sender of the request receives the reason with the next reply to an end-of-request message. So
// both ends know why the chunks were of no use.
type Abandon struct {
	Request []byte
	Reason  []byte         // for people; may be empty
	Tenant  effects.Tenant // the tenant of the request's chunks, for the Reason; all else is cancelled for any tenant
}

// GiveUp does for chunks of a request what a Fetch does that begins and fails: the claims of the request on chunks that
// are here end, and so do the offers of chunks that are elsewhere. The senders of these offers are notified. GiveUp is
// for the later parts of a fetch that was too large for one command. Reads and Gets in progress continue, and chunks
// that arrive later are kept, unlike after an Abandon.
type GiveUp struct {
	Request []byte
	Keys    [][]byte
	Realm   effects.Realm // the trust domain of the chunks, as in the Fetch
}

// IsCommand marks Get as a command body.
func (*Get) IsCommand() {}

// IsCommand marks Fetch as a command body.
func (*Fetch) IsCommand() {}

// IsCommand marks Contains as a command body.
func (*Contains) IsCommand() {}

// IsCommand marks Unpin as a command body.
func (*Unpin) IsCommand() {}

// IsCommand marks Abandon as a command body.
func (*Abandon) IsCommand() {}

// IsCommand marks GiveUp as a command body.
func (*GiveUp) IsCommand() {}
