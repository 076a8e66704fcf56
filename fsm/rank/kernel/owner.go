// Package kernel holds the bookkeeping that all rooms of a rank share: which room an outstanding effect, a deadline, a
// connection or the ticket of a command belongs to, and how work is cut into steps.
//
// A room that emits an effect opens a correlation number for the effect ([Corrs]), and a room that waits sets a
// deadline ([Timers]). Both record a [Ref]: an owner and a row. When the completion arrives or the deadline expires,
// the rank finds the Ref and calls the owner. A [Sweep] ends many rows over several steps.
//
// A caller may rely on the following:
//
//   - A Corr is never given out twice, and its completion is taken exactly once.
//   - All deadlines are in a single heap, and Stop really removes a deadline, so nothing has to be cancelled outside
//     the machine.
//   - Equal deadlines expire in the order of the calls to Set.
//
// Example: the link room connects to a peer.
//
//  1. The link room calls Corrs.Open with Ref{Owner: OwnerLink, Subject: h, Attempt: 2}, emits an Open effect with the
//     Corr, and sets a deadline for the handshake.
//  2. The deadline expires first. The link room gives up the attempt and begins attempt 3.
//  3. The driver completes the Open of attempt 2. The rank calls Corrs.Close and hands the completion and the Ref to
//     the link room, which sees that attempt 2 is over and closes the connection.
package kernel

import "github.com/kvferry/kvferry/fsm/table"

// Owner is a room or a flow of the rank that is notified of completions, deadlines and grants.
type Owner uint8

// The owners. OwnerNone means that no room is to be notified.
const (
	OwnerNone         Owner = iota
	OwnerRank               // the rank itself: drains
	OwnerLink               // links: handshakes and connections of peers
	OwnerPushSource         // the sender of a push
	OwnerPullSource         // the sender that offers chunks to be pulled
	OwnerPipeline           // reads into staging pages
	OwnerEngine             // commands of the engine
	OwnerGets               // Gets that wait for chunks
	OwnerStore              // claims on chunks in the store
	OwnerAllocQueue         // the queue of allocation requests
	OwnerDeferred           // deferred offers
	OwnerLease              // renewals of read leases, at the reader
	OwnerNotices            // done messages and their connections
	OwnerPushTarget         // the receiver of a push
	OwnerPullTarget         // the receiver of offers
	OwnerRecallSource       // the rank that recalls chunks from a peer
	OwnerRecallTarget       // the rank that chunks are recalled from
	OwnerP2POwner           // the owner of shared chunks that peers request
	OwnerP2PRequester       // the rank that requests shared chunks
	OwnerP2PTarget          // grants of the requester, which owners of shared chunks push into
	OwnerRegistrar          // reports to the directories
	OwnerLookups            // lookups in the directories
	OwnerBundles            // bundles of layers
	OwnerLayers             // the sender of a layerwise push
	OwnerConsumer           // the receiver of registered blocks
	OwnerProducer           // the sender of registered blocks
	OwnerEndSource          // the sender of end-of-request messages
	OwnerEndTarget          // the receiver of end-of-request messages
	OwnerCount              // the number of owners
)

// Ref says which row a completion, a deadline or a connection belongs to, and what is expected for that row.
//
// An owner that makes several attempts for a row numbers the attempts of a table slot upwards, across all rows that use
// the slot. Attempt therefore distinguishes the completions of a former attempt, and rows of the same slot, even after
// a handle has been repeated. Other owners store a number of their choice there, for example the part of a copy.
type Ref struct {
	Owner   Owner
	Kind    uint8        // meaning defined by the owner
	Subject table.Handle // the row in the owner's table
	Attempt uint64       // the attempt, or a number of the owner
}

// PanicUnexpected panics: a room was given an event of a kind that the room never asks for. The argument names the
// room, for the message.
func PanicUnexpected(room string) {
	panic("BUG: " + room + " was given an event that it never asks for")
}
