// Package plane is the data plane: a node's memory with its fences, and the interface by which the
// event loop moves pages to peers.
//
// # Who stores
//
// Every store into a pool is made by the process that owns it, or by one that it attached: an engine's, which owns
// the pages that the machine gave it as if it were here. Peers map the pool read-only, or send bytes that the owner
// reads. A push is therefore a request of the initiator that the target's planes
// carry out, and the [Pool] alone decides, page by page, whether they may:
//
//	initiator                                target
//	                                         Pool.Grant, told to the initiator by a message
//	Plane.Transfer ── push(grant, pairs) ──► Pool.Claim
//	                                         Claim.Hold, store, Claim.Unhold   for each page or part
//	                                         Claim.Land -> Landed              closes the grant of whole pages
//	TransferDone ◄────────── done(code) ──── Plane.Confirm
//
// # Who reads
//
// A read goes the other way: the owner lends pages that hold content, and the peer fetches them. Any number of
// grants to read may cover a page, and any number of reads be under way under one grant; nobody stores into the page
// until all of them are revoked. A peer on the same host reads by itself, by the pool's permits (see readpermit.go),
// and the owner's process has no part in it. For others the owner's plane sends the bytes:
//
//	reader                                   owner
//	                                         Pool.Grant{Read}, told to the reader by a message
//	Plane.Transfer ── read(grant, pairs) ──► Pool.Loan
//	store ◄───────── pages ───────────────── Loan.Hold, send, Loan.Unhold     for each part of a page
//	TransferDone ◄── done(code) ────────────
//
// A read ends well only if its grant stood until the last byte was read, so what was delivered is what was lent,
// whatever the owner did with its pages afterwards. Part of a read is nothing.
//
// # One pool, several planes
//
// Publish, Grant and Revoke are the pool's, because planes share its pages and its grants. Imports,
// transfers and confirmations are each plane's own. Links and landings are numbered by one [IDs], so
// they are unique over all planes of a node: [Plane.Drop], [Plane.Cancel] and [Plane.Confirm] ignore
// what is not theirs, and the loop need not remember whose it was.
//
// # What comes back
//
// Planes complete through a [Sink] that never blocks. Each event is allocated for its one delivery and
// belongs to the receiver.
package plane
