package effects

import "strconv"

// Fact is the kind of an Observe.
type Fact uint8

// Facts, with what Code, Count and ID hold.
const (
	// FactLinkUp: a handshake ended well. ID: the Link.
	FactLinkUp Fact = iota + 1
	// FactLinkDown: a link or an attempt at one ended. Code: why. Count: failures in a row.
	FactLinkDown
	// FactGranted: pages were granted. ID: the grant. Count: pages.
	FactGranted
	// FactAllocRefused: a request got no pages, or an offer is not read. Code: why. Count: chunks. ID: the Conn, if it
	// is known.
	FactAllocRefused
	// FactReady: a chunk became readable. ID: the key's hash.
	FactReady
	// FactFillLost: a granted page was not filled. Code: why. ID: the key's hash.
	FactFillLost
	// FactReclaimed: a grant's quarantine ended. ID: the grant. Count: pages freed.
	FactReclaimed
	// FactLapsed: a chunk was kept for as long as was promised and nobody came for it. ID: the key's hash. Count: requests
	// that it was kept for and is no more. It leaves in that step, unless it is kept for others, being read, or a cache's
	// from now on.
	FactLapsed
	// FactPutEnded: a batch ended. Code: how. Count: chunks. ID: the ticket.
	FactPutEnded
	// FactProxyTold: the proxy was notified. Code: of the SendDone. Count: chunks known missing.
	FactProxyTold
	// FactMalformed: bytes were refused. Code: Malformed or why. ID: the Conn.
	FactMalformed
	// FactHelloRefused: a peer that called was not let in. Code: why. ID: the Conn.
	FactHelloRefused
	// FactGivenBack: a sender gave a grant back, or took offers back. Code: what it says of why. Count: how many.
	FactGivenBack
	// FactEvicted: a cache gave up a chunk that nobody expected or read, because its page was wanted. ID: the key's hash.
	FactEvicted
	// FactRecallEnded: a recall ended. Code: how. Count: chunks that came. ID: the ticket.
	FactRecallEnded
	// FactRecalled: a peer's question which chunks it may read back was answered, for the first time. Code: OK, or why it
	// was refused. Count: chunks. ID: the grant; of a refusal the Conn.
	FactRecalled
	// FactDirectory: a directory has something to say of a worker, for people. ID: which directory.Event. Count: the
	// worker's rank. Why: its instance as Name, and as Field the location that it is about, if it is about one.
	FactDirectory
	// FactShared: a peer's question which chunks are here was answered, for the first time. Code: OK, or why it was
	// refused. Count: chunks. ID: the grant; of a refusal the Conn.
	FactShared
	// FactBrought: a Bring ended. Code: how, TooMany where its owner has more and lends no more to one peer. Count: chunks
	// that it made readable, or that came meanwhile. ID: the ticket.
	FactBrought
	// FactLayersEnded: a request that was pushed layer by layer ended. Code: how. Count: chunks that are missing. ID: the
	// ticket of its Finish.
	FactLayersEnded
	// FactReceived: blocks that were registered were written, or will not be. Code: how. Count: pages. ID: the ticket.
	FactReceived
	// FactWritten: what was finished was written for its consumer, or will not be. Code: how. Count: pages that were
	// written. ID: the ticket.
	FactWritten
	// FactRegistered: a registration was answered. Code: how. Count: pages. ID: the grant.
	FactRegistered
	// FactEndTold: a receiver was told how a request ended, or could not be. Code: how that went. Count: the code that it
	// is told. ID: the ticket.
	FactEndTold
)

// FactOther, and all above it, are for machines of others. It is no fact by itself.
const FactOther = 64

// FactCount is the number of facts of ours, none included.
const FactCount = int(FactEndTold) + 1

// factNames are stable: they stand in logs and metrics.
//
//kvferry:table
var factNames = [FactCount]string{
	"none", "link_up", "link_down", "granted", "alloc_refused", "ready", "fill_lost", "reclaimed",
	"lapsed", "put_ended", "proxy_told", "malformed", "hello_refused", "given_back", "evicted",
	"recall_ended", "recalled", "directory", "shared", "brought", "layers_ended",
	"received", "written", "registered", "end_told",
}

// String returns the stable name of the fact.
func (f Fact) String() string {
	if int(f) < FactCount {
		return factNames[f]
	}
	if f >= FactOther {
		return "fact" + strconv.Itoa(int(f))
	}
	return "invalid"
}
