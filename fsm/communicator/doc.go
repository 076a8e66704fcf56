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
// An Initiator is the end that pushes and reads, and decides for one link. A Target decides for the end whose memory is
// reached, and all links to it. Both are machines like those of a rank: time and everything else comes with events,
// state is a plain tree, and nothing is drawn.
//
// # What proves that an epoch is over
//
//	at the initiator  each batch has ended well; or the stream was aborted and the communicator destroyed, and what was
//	                  in the network has arrived; or the bound of the hardware has passed since the abort. Its driver
//	                  says which: TornDown, or NoProof
//	at the target     over RoCE: its own end was destroyed; no word of the initiator's counts before. Over HCCS, which
//	                  maps its memory, and over RoCE where its own end could not be destroyed: the initiator's word. That
//	                  is gone, the offer of the next epoch, or the end of the channel, which an initiator closes last of
//	                  all and the kernel of a dead one closes for it
//
// Without proof nothing is called settled or revoked, and pages stay in quarantine.
package communicator
