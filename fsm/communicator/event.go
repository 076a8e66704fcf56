package communicator

import "github.com/kvferry/kvferry/effects"

// EventKind is the kind of an Event of an Initiator.
type EventKind uint8

// The kinds of events, with the fields of Event that each reads.
const (
	Begin        EventKind = iota + 1 // the link is established: the first epoch is to be offered
	Transfer                          // Corr, Grant, Since, NotAfter, Batches: the machine requests a transfer
	Cancel                            // Corr: the machine cancels the transfer
	Accepted                          // Epoch, Code, Revoked, MoreRevoked: the target's answer to an offer
	Formed                            // Epoch, Code: the result of forming the epoch's communicator
	Submitted                         // Outcome: the result of submitting the batch that Next returned
	BatchEnded                        // Epoch, Succeeded: the oldest batch in flight has ended
	TargetFenced                      // Epoch: the target has fenced the epoch
	Stuck                             // Epoch: the proof for the epoch takes long
	NoProof                           // Epoch: there will be no proof for the epoch
	TornDown                          // Epoch: nothing touches any memory by the epoch any more
	ChannelLost                       // the connection to the target has ended
	Drop                              // the machine drops the link
	Close                             // the plane closes
	Tick                              // time has passed
)

// An Event is something that happened. Fields that its kind does not read are ignored. The lists are borrowed for the
// step.
type Event struct {
	Kind      EventKind
	Epoch     uint64
	Code      effects.Code
	Outcome   Outcome
	Succeeded bool
	Corr      effects.Corr
	Grant     effects.GrantID
	Since     effects.Time // the grant was given no earlier
	Batches   int
	// NotAfter is the last instant at which a batch may be submitted (M4).
	NotAfter    effects.Time
	Revoked     []effects.GrantID // grants to this initiator that the target has revoked
	MoreRevoked bool              // further grants were revoked: all grants given before this answer count as revoked
}

// Outcome is the result of submitting a batch.
type Outcome uint8

// The outcomes of a submission.
const (
	InFlight     Outcome = iota // the batch is in flight
	TooLate                     // not submitted: its time was over by the clock that was read just before
	SubmitFailed                // the call failed: part of the batch may be in flight
)

// A Batch is the batch to submit next: batch Index of a transfer, counted from 0.
type Batch struct {
	Corr     effects.Corr
	Index    int
	NotAfter effects.Time // the driver compares its clock with this immediately before it submits the batch
}

// Effects is what the driver must do after a step. The driver carries it out in the order of the fields, none of which
// blocks, and then empties it.
type Effects struct {
	Posts     []Post
	Messages  []Message
	FormEpoch uint64 // form and prepare the communicator of this epoch; Formed completes it; a failure leaves nothing
	TearDown  TearDown
}

// Reset empties Effects for the next step.
func (o *Effects) Reset() {
	o.Posts, o.Messages = o.Posts[:0], o.Messages[:0]
	o.FormEpoch, o.TearDown = 0, TearDown{}
}

// PostKind says which event the machine of the rank is owed.
type PostKind uint8

// The events for the machine, with the fields of Post that each sets.
const (
	PostImported     PostKind = iota + 1 // Code
	PostTransferDone                     // Corr, Code, Settled, At
	PostSettled                          // Corr, Code
	PostLinkLost
	PostDropped
)

// A Post is an event for the machine that imported the link.
type Post struct {
	Kind    PostKind
	Code    effects.Code
	Settled bool
	Corr    effects.Corr
	At      effects.Time
}

// MessageKind is the kind of a message that the ends of a link exchange about an epoch.
type MessageKind uint8

// The messages.
const (
	MessageOffer  MessageKind = iota + 1 // by the initiator: all epochs before this one are over
	MessageFenced                        // by either end: the epoch is used no more
	MessageGone                          // by the initiator: its hardware touches nothing by the epoch any more
)

// A Message is a message about an epoch for the peer.
type Message struct {
	Kind  MessageKind
	Epoch uint64
}

// A TearDown ends every access of an epoch to any memory and removes its communicator. TornDown completes it when there
// is proof that no access can follow. Stuck precedes TornDown where the proof takes long, and NoProof replaces TornDown
// where there is no proof.
type TearDown struct {
	Epoch    uint64 // 0: nothing is to be torn down
	InFlight int    // batches in flight; without any, destroying the communicator is proof enough
	ByPeer   bool   // the target fenced the epoch
	Last     bool   // no epoch follows
}
