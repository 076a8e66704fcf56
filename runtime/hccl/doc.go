// Package hccl is the data plane between Ascend NPUs: a leased plane, on which hardware of the peer stores and loads by
// itself and nobody can watch it. What M4 of docs/safety.md asks of such a plane is kept by how communicators live and
// end, and what decides about that is fsm/communicator: its package comment says what the ends tell each other, and
// what proves that nothing touches a page any more. Here is what carries it out.
//
// An Import makes a link: one connection between the two planes (the channel), and one communicator of two ranks at a
// time with one stream, by which this end pushes to the peer's pool and reads from it. Each communicator is an epoch of
// its link, and named by the link's random session and the epoch's number, so that no two ever have the same name:
//
//	initiator                                  target
//	hello{who, whom, proof, session, rank} -->
//	            <-- welcome{code, rank, pool}
//	words about epochs                     <->
//
// An outgoing carries out what the machine of a link decides, on that link's goroutine (epochs.Link), and reads the
// clock against NotAfter right before it submits. An incoming is the target's side; what all links to us decide is one
// machine (epochs.Arrivals).
//
// A communicator that was fenced is torn down (end.go): the initiator aborts the stream, destroys its end and waits out
// what hardware may still do, and says whether that is proven. R bounds the wait where the end could not be destroyed
// (residual.go).
package hccl
