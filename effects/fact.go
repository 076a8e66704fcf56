package effects

import "strconv"

// Fact is the kind of an Observe.
type Fact uint8

// The facts, with the meaning of Code, Count and ID of their Observe.
const (
	// FactLinkUp: a handshake succeeded. ID: the Link.
	FactLinkUp Fact = iota + 1
	// FactLinkDown: a link or an attempt at a link ended. Code: why. Count: failures in a row.
	FactLinkDown
	// FactGranted: pages were granted. ID: the grant. Count: pages.
	FactGranted
	// FactAllocRefused: a request got no pages, or an offer is not read. Code: why. Count: chunks. ID: the Conn, if
	// known.
	FactAllocRefused
	// FactReady: a chunk became readable. ID: the key's hash.
	FactReady
	// FactFillLost: a granted page was not filled. Code: why. ID: the key's hash.
	FactFillLost
	// FactReclaimed: a grant's quarantine ended. ID: the grant. Count: pages freed.
	FactReclaimed
	// FactLapsed: a chunk was kept for as long as was promised and no request fetched it. ID: the key's hash. Count:
	// the requests for which it was kept and is kept no more. The chunk is evicted in that step, unless it is kept for
	// other requests, is being read, or belongs to a cache from then on.
	FactLapsed
	// FactPutEnded: a batch ended. Code: how. Count: chunks. ID: the ticket.
	FactPutEnded
	// FactProxyTold: the proxy was notified. Code: that of the SendDone. Count: chunks known to be missing.
	FactProxyTold
	// FactMalformed: bytes were refused. Code: Malformed or why. ID: the Conn.
	FactMalformed
	// FactHelloRefused: a peer that called was not admitted. Code: why. ID: the Conn.
	FactHelloRefused
	// FactGivenBack: a sender gave a grant back, or withdrew offers. Code: the reason that the sender states. Count:
	// how many.
	FactGivenBack
	// FactEvicted: a cache evicted a chunk that no request expected or read, because its page was needed. ID: the key's
	// hash.
	FactEvicted
	// FactRecallEnded: a recall ended. Code: how. Count: chunks that arrived. ID: the ticket.
	FactRecallEnded
	// FactRecalled: a peer's query for the chunks that it may recall was answered for the first time. Code: OK, or why
	// it was refused. Count: chunks. ID: the grant; of a refusal the Conn.
	FactRecalled
	// FactDirectory: a directory reports an event about a worker, for people. ID: which directory.NoteKind. Count: the
	// worker's rank. Why: its instance as Name, and as Field the location that the event concerns, if any.
	FactDirectory
	// FactShared: a peer's query for the chunks stored at this rank was answered for the first time. Code: OK, or why
	// it was refused. Count: chunks. ID: the grant; of a refusal the Conn.
	FactShared
	// FactBrought: a Bring ended. Code: how; TooMany where the owner has more chunks but gives no more leases to one
	// peer. Count: chunks that the Bring made readable, or that arrived meanwhile. ID: the ticket.
	FactBrought
	// FactLayersEnded: a request that was pushed layer by layer ended. Code: how. Count: chunks that are missing. ID:
	// the ticket of its Finish. Report: since its Begin.
	FactLayersEnded
	// FactReceived: registered blocks were written, or will not be. Code: how. Count: pages. ID: the ticket. Report: since the
	// Register.
	FactReceived
	// FactWritten: the blocks of a finished request were written for their consumer, or will not be. Code: how. Count:
	// pages that were written. ID: the ticket. Report: since the Finished.
	FactWritten
	// FactRegistered: a registration was answered. Code: how. Count: pages. ID: the grant. Report: since its arrival.
	FactRegistered
	// FactEndTold: a receiver was notified of how a request ended, or could not be. Code: how the notification went.
	// Count: the code in the notification. ID: the ticket.
	FactEndTold
	// FactGrantTraced: a grant for chunks of a traced request ended; of other grants nothing is said. Code: OK if all
	// pages became readable, else Withdrawn. Count: pages. ID: the grant. Report: from the receipt of the request on.
	FactGrantTraced
	// FactLayersSent: a batch of a request that is pushed layer by layer ended. Code: how. Count: pages. ID: its operation.
	// Report: since the first of its layers was saved, like the report of a put.
	FactLayersSent
)

// FactOther and all higher numbers are for machines outside this project. FactOther is not a fact by itself.
const FactOther = 64

// FactCount is the number of facts of this project, the zero value included.
const FactCount = int(FactLayersSent) + 1

// factNames are stable: they appear in logs and metrics.
//
//kvferry:table
var factNames = [FactCount]string{
	"none", "link_up", "link_down", "granted", "alloc_refused", "ready", "fill_lost", "reclaimed",
	"lapsed", "put_ended", "proxy_told", "malformed", "hello_refused", "given_back", "evicted",
	"recall_ended", "recalled", "directory", "shared", "brought", "layers_ended",
	"received", "written", "registered", "end_told", "grant_traced", "layers_sent",
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
