package communicator

import "github.com/kvferry/kvferry/effects"

// EventKind says what happened to an Initiator.
type EventKind uint8

// The kinds, with the fields of Event that each reads.
const (
	Begin       EventKind = iota + 1 // the link stands: the first epoch is to be offered
	Transfer                         // Corr, Grant, Since, NotAfter, Batches: the machine wants it
	Cancel                           // Corr: the machine wants it no more
	Accepted                         // Epoch, Code, Revoked, More: the target's answer to an offer
	Formed                           // Epoch, Code: how the forming of its communicator ended
	Submitted                        // How: what came of submitting what Next gave
	BatchEnded                       // Epoch, Well: the oldest batch in flight has ended
	PeerFenced                       // Epoch: the target has fenced it
	Stuck                            // Epoch: the proof for it takes long
	NoProof                          // Epoch: there will be none
	TornDown                         // Epoch: nothing touches any memory by it any more
	ChannelLost                      // the connection to the target has ended
	Drop                             // the machine lets go of the link
	Close                            // the plane ends
	Tick                             // time has passed
)

// An Event is one thing that happened. Fields that its kind does not read are ignored. The lists are borrowed.
type Event struct {
	Kind    EventKind
	Epoch   uint64
	Code    effects.Code
	How     Outcome
	Well    bool
	Corr    effects.Corr
	Grant   effects.GrantID
	Since   effects.Time // the grant was given no earlier
	Batches int
	// NotAfter is the last instant at which a batch may be submitted.
	NotAfter effects.Time
	Revoked  []effects.GrantID // grants of ours that the target has taken back
	More     bool              // there were others: all that were given before count as taken back
}

// Outcome is what came of submitting a batch.
type Outcome uint8

// Outcomes of a submission.
const (
	Done    Outcome = iota // it is under way
	TooLate                // not submitted: its time was over by the clock that was read just before
	Broken                 // the call failed: part of it may be under way
)

// A Batch is what is to be submitted next: batch Index of a transfer, counted from 0.
type Batch struct {
	Corr     effects.Corr
	Index    int
	NotAfter effects.Time // the driver reads its clock against this right before
}

// Out is what a step wants done. The driver carries it out in the order of the fields, none of which blocks, and
// empties it.
type Out struct {
	Posts    []Post
	Says     []Say
	Form     uint64 // make the communicator of this epoch and prepare it: Formed answers. What fails leaves nothing
	TearDown TearDown
}

// Reset empties it for the next step.
func (o *Out) Reset() {
	o.Posts, o.Says = o.Posts[:0], o.Says[:0]
	o.Form, o.TearDown = 0, TearDown{}
}

// PostKind says which of the machine's events is owed.
type PostKind uint8

// The events that a machine is told.
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

// Word is what the ends of a link say to each other of an epoch.
type Word uint8

// The words.
const (
	Offer  Word = iota + 1 // the initiator's: all epochs before this one are over
	Fenced                 // either end's: it is used no more
	Gone                   // the initiator's: its hardware touches nothing by it any more
)

// A Say is a word for the peer.
type Say struct {
	Word  Word
	Epoch uint64
}

// A TearDown ends every access of an epoch to any memory and takes its communicator away. TornDown answers when there
// is proof that no access can follow, Stuck before it where that takes long, and NoProof instead where there is none.
type TearDown struct {
	Epoch  uint64 // 0: nothing is to be torn down
	Flying int    // batches in flight; without any, destroying it is proof enough
	ByPeer bool   // the target fenced it
	Last   bool   // no epoch follows
}
