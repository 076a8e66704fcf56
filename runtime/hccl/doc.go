// Package hccl is the data plane between Ascend NPUs, a leased plane: the peer's hardware stores and loads by itself,
// and the owner of the memory cannot observe the accesses. Rule M4 of docs/safety.md therefore rests on how
// communicators are made and destroyed. The machine fsm/communicator makes these decisions; see that package's comment
// for the messages that the ends exchange and for the proof that nothing touches a page any more. Package hccl carries
// out the decisions.
//
// An Import makes a link. A link has a connection between the two planes (the channel), and at any time one
// communicator of two ranks with one stream, by which this end pushes to the peer's pool and reads from that pool. Each
// communicator is an epoch of its link. The name of a communicator consists of the link's random session and the
// epoch's number, so that no two communicators ever have the same name. The main fields of the frames:
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
// The initiator's side of a link carries out the decisions of the link's machine, on that link's goroutine
// (epochs.OutgoingLink). Right before each submission of a batch the initiator compares the clock with the batch's
// NotAfter. The target's side belongs to a machine that decides for all inbound links (epochs.IncomingLinks).
//
// A fenced communicator is torn down (endpoint.go): the initiator aborts the stream, destroys its end, waits as long as
// hardware may still act, and reports whether there is proof that nothing touches memory any more. If the stream was
// aborted but the end could not be destroyed, the residual time R after the abort is the proof (residual.go). If
// neither succeeded, there is no proof.
package hccl
