// Package link is what the planes of this module share: connections between an initiator and a target,
// the handshake on them, transfers at the one end, pushes and supplies at the other. How bytes move is a
// [Medium]'s affair; who may, when it ended and what is owed to whom is decided here, once.
//
// A link is one stream connection, opened by the initiator, that serves its pushes and its reads.
// Frames are little-endian: a length (of all that follows it), a kind, a body.
//
//	initiator                        target
//	hello{who, whom, proof, ...} ──►           proves that the handshake made it who it says to be
//	           ◄── welcome{code, who, proof, ...} code is OK, or why not; proves who answers
//	push{transfer, slot, grant, pairs} ►       slot: where the transfer's permit is, on shm
//	read{transfer, 0, grant, pairs} ────►      where the target must send the pages; on shm nobody asks
//	cancel{transfer} ──────────────►           best effort
//	           ◄────── done{transfer, code}    of a push after the target's machine confirmed; of a read OK if each
//	                                           byte sent was under the grant when it was read
//
// On shm each end's memory travels beside its first frame, as file descriptors: the pool, and with the hello the
// permits of pushes, with the welcome those to read.
//
// Transfers of a plane are numbered upwards, so those of a link are, too. Anything else, anything too long and anything
// out of order closes the connection: framing cannot be trusted after it.
//
// One mutex for each plane guards all tables. It is taken for each batch, and a few times for
// each page, never while bytes move.
package link
