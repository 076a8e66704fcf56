// Package link contains what the fenced planes of this module (shm and tcp) share: connections between an initiator
// and a target, the handshake on them, transfers at the initiator's end, pushes and served reads at the target's end.
// A [Medium] moves the bytes. This package decides, for all media, which transfers are admitted, when a transfer has
// ended, and which completion is owed to the machine.
//
// A link is a stream connection, opened by the initiator, which serves the initiator's pushes and reads. Frames are
// little-endian: a length (of everything that follows), a kind, a body.
//
//	initiator                        target
//	hello{from, to, proof, ...} ──►            proves that the initiator is the peer of the control plane's handshake
//	           ◄── welcome{code, from, proof, ...} OK or a refusal; proves that the target answers
//	push{transfer, slot, grant, pairs} ►       slot: the place of the transfer's permit, on shm
//	read{transfer, 0, grant, pairs} ────►      where the target must send the pages; never on shm
//	cancel{transfer} ──────────────►           best effort
//	           ◄────── done{transfer, code}    of a push: after the target's machine has confirmed the push;
//	                                           of a read: OK if each byte sent was under the lease when it was read
//
// On shm each end passes its memory beside the first frame, as file descriptors: the pool, and with the hello the
// permits of pushes, with the welcome the read permits.
//
// The transfers of a plane are numbered upwards, and therefore the transfers of a link, too. A frame of any further
// kind, a frame that is too long and a frame that is out of order end the connection, because the framing cannot be
// trusted afterwards.
//
// What a caller may rely on:
//
//   - Each Transfer gets one TransferDone, and one Settled if the TransferDone was not settled. Whether a transfer is
//     settled depends on the threads of this process alone, and on no message of a peer (M3, M8).
//   - When LinkLost or Dropped is posted, nothing of the link runs any more.
//   - One mutex per plane guards all tables. The mutex is taken once for each batch and a few times for each page, and
//     never while bytes move.
package link
