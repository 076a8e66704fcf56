// Package communicator contains the state machines for leased data planes that move pages by communicators. A
// communicator is a connection of two devices on which the hardware of one end stores and loads at the other end, and
// which can be ended only as a whole. HCCL has such communicators; over libnixl, agents take their place. The package
// knows no library and no network connection: a driver passes events to a machine and carries out what the machine
// returns.
//
// A link is the result of one import, and has one communicator at a time. Each communicator is an epoch of its link,
// with a number that only grows, so no number is used twice. When anything may have gone wrong on a communicator, its
// epoch is fenced: nothing is submitted on it any more, and the communicator is torn down. What the epoch touched is
// settled only when there is proof that no hardware accesses memory through it. The next epoch is offered only then, so
// no batch is ever in progress in two epochs, and a batch that was not reported to the rank's machine as ended can be
// submitted again.
//
//	initiator                                        target
//	offer{epoch} ---------------------------------->  all epochs before it are over at the initiator
//	              <-- accept{epoch, revoked grants}
//	  both form the communicator
//	fenced{epoch} <-------------------------------->  the epoch is used no more, and its end is taken away
//	gone{epoch} ----------------------------------->  no hardware of the initiator touches anything by it
//
// An [Initiator] is the end that pushes and reads. It decides for one link. A [Target] decides for the end with the
// memory to access, and for all links to it. Both are state machines like those of a rank: time and everything else
// arrives with events, the state is a plain tree, and there is no randomness.
//
// # Example
//
// A target revokes a grant while a batch is in flight:
//
//	target: GrantRevoked     the epoch is fenced: "fenced" is sent, and the target's end is taken away
//	initiator: TargetFenced  the initiator fences its end, and TearDown is returned to its driver
//	initiator: TornDown      the batch is settled, "gone" is sent, and the next epoch is offered
//	target: InitiatorGone    the driver waits for the margin; over HCCS the revocation then completes
//	target: EpochOffered     the accept names the revoked grant, so its transfer ends as Withdrawn
//
// # What proves that an epoch is over
//
//	at the initiator  each batch has ended well; or the stream was aborted and the communicator destroyed, and what was
//	                  in the network has arrived; or the bound of the hardware has passed since the abort. The driver
//	                  reports which: TornDown, or NoProof
//	at the target     over RoCE: the target's own end was destroyed; no message of the initiator counts before that.
//	                  Over HCCS, which maps the target's memory, and over RoCE where the target's own end could not be
//	                  destroyed: the initiator's message. That is "gone", the offer of the next epoch, or the end of
//	                  the channel, which an initiator closes last of all and the kernel of a dead initiator closes for
//	                  it
//
// Without proof nothing is reported as settled or revoked, and the pages stay in quarantine (M4).
package communicator
