// Package hccl is the data plane between Ascend NPUs: a leased plane, on which hardware of the peer stores and loads by
// itself and nobody can watch it. What M4 of docs/safety.md asks of such a plane is kept by how communicators live and
// end.
//
// # Links and lives
//
// An Import makes a link: one connection between the two planes (the channel), and one communicator of two ranks at a
// time with one stream, by which this end pushes to the peer's pool and reads from it. A communicator is one life of
// its link. Its name is made of the link's random session and the life's number, so no two ever have the same. On the
// channel the ends agree about lives:
//
//	initiator                                  target
//	hello{who, whom, proof, session, rank} ──►
//	            ◄── welcome{code, rank, pool}
//	offer{life} ─────────────────────────────►  all lives before it are settled here
//	            ◄── accept{life, revoked}       the grants of this initiator that were taken back so far
//	  both ends make the communicator and prepare it
//	condemned{life} ◄────────────────────────►  it is used no more, and its end goes away
//	gone{life} ──────────────────────────────►  no hardware of the initiator touches anything by it
//
// Whatever goes wrong with a communicator condemns it: an error, a batch that does not end, a cancelled one that does
// not, a revocation at the target. Then the initiator aborts the stream, destroys its end and waits out what hardware
// may still do; only when that is proven does it offer the next life, and submits again what the machine was told
// nothing of. So no batch is in two communicators, and none is submitted under a grant that was taken back before its
// communicator came to be: whoever revokes one later condemns that communicator. The clock is read against NotAfter
// before each submission.
//
// # What proves that a life is over
//
//	at the initiator  each batch has ended well; or the stream was aborted and the communicator destroyed, and what was in the
//	                  network has arrived; or R has passed since the abort (residual.go)
//	at the target     over RoCE: its own end was destroyed, so the queue pair is gone; no word of the initiator's counts before. Over HCCS,
//	                  and over RoCE where its own end could not be destroyed: the initiator's word. That is gone, the offer of the next
//	                  life, or the end of the channel, which an initiator closes last of all and the kernel of a dead one closes for it
//
// Without proof nothing is called settled or revoked, and pages stay in quarantine.
package hccl
