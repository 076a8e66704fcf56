// Package hccl is the data plane between Ascend NPUs. It is a leased plane: hardware of the peer stores and loads by
// itself, and nobody can observe it. Rule M4 of docs/safety.md therefore rests on how communicators are made and
// destroyed. The machine fsm/communicator decides about that; its package comment says which messages the ends exchange
// and what proves that nothing touches a page any more. This package carries the decisions out.
//
// An Import makes a link. A link has one connection between the two planes (the channel). At any time it has one
// communicator of two ranks with one stream, by which this end pushes to the peer's pool and reads from it. Each
// communicator is an epoch of its link. It is named by the link's random session and the epoch's number, so that no two
// communicators ever have the same name:
//
//	initiator                                  target
//	hello{from, to, proof, session, rank} -->
//	            <-- welcome{code, rank, pools}
//	offer{epoch 1}                        -->
//	            <-- accept{epoch 1}             both make their end of the communicator
//	batches                               ==>
//	fenced{epoch 1}                       <->  either end has given the epoch up
//	gone{epoch 1}                         -->  proven: nothing of epoch 1 touches a page any more
//	offer{epoch 2}                        -->
//
// An outgoing carries out what the machine of a link decides, on that link's goroutine (epochs.OutgoingLink). It reads
// the clock right before it submits a batch, and compares it with NotAfter. An incoming is the target's side of a link;
// one machine (epochs.IncomingLinks) decides for all inbound links.
//
// A communicator that was fenced is torn down (end.go): the initiator aborts the stream, destroys its end, waits as
// long as hardware may still act, and reports whether the end is proven. If the end could not be destroyed, the
// residual time R bounds that wait (residual.go).
package hccl
