// Package communicator decides for leased planes that move pages by communicators: connections of two devices on which
// hardware of one end stores and loads at the other, and which can be ended only as a whole. HCCL's are such. It knows
// no library and no connection: a driver feeds what happens and carries out what comes out.
//
// A link is what one import makes, and has one communicator at a time. Each is an epoch of its link, with a number that
// only grows, so that none comes twice. A communicator by which anything may have gone wrong is fenced: nothing is
// submitted on it any more, and it is torn down. What it touched is settled only with proof that no hardware is at it
// through that epoch. The next epoch is offered only then, so no batch is ever in the hands of two, and what the
// machine was told nothing of is submitted again.
//
//	initiator                                        target
//	offer{epoch} ---------------------------------->  all epochs before it are over at the initiator
//	              <-- accept{epoch, revoked grants}
//	  both form the communicator
//	fenced{epoch} <-------------------------------->  it is used no more, and its end goes away
//	gone{epoch} ----------------------------------->  no hardware of the initiator touches anything by it
//
// An Initiator is the end that pushes and reads. It is a machine like those of a rank: time and everything else comes
// with events, state is a plain tree, and nothing is drawn.
package communicator
