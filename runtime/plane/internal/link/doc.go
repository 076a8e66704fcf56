// Package link is what the planes of this module share: connections between an initiator and a target,
// the handshake on them, transfers at the one end and pushes at the other. How bytes move is a
// [Medium]'s affair; who may, when it ended and what is owed to whom is decided here, once.
//
// A link is one stream connection, opened by the initiator, that serves pushes in its direction only.
// Frames are little-endian: a length (of all that follows it), a kind, a body.
//
//	initiator                        target
//	hello{who, whom, token, ...} ──►           proves that it was invited, and by which incarnation
//	           ◄── welcome{code, who, buffer}  code is OK, or why not
//	push{transfer, slot, grant, pairs} ►       slot: where the transfer's permit is, on shm
//	cancel{transfer} ──────────────►           best effort
//	           ◄────── done{transfer, code}    after the target's machine confirmed
//
// Transfers of a plane are numbered upwards, so those of a link are, too. Anything else, anything too long and anything out of order
// closes the connection: framing cannot be trusted after it.
//
// One mutex for each plane guards all tables. It is taken for each batch, and once or twice for
// each page, never while bytes move.
package link
