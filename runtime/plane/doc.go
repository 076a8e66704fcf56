// Package plane is the data plane: a node's memory with its fences, and the interface by which the
// event loop moves pages to peers.
//
// # Who stores
//
// Every store into a pool is made by the process that owns it. Peers map the pool read-only, or send
// bytes that the owner reads. A push is therefore a request of the initiator that the target's planes
// carry out, and the [Pool] alone decides, page by page, whether they may:
//
//	initiator                                target
//	                                         Pool.Grant, told to the initiator by a message
//	Plane.Transfer ── push(grant, pairs) ──► Pool.Claim
//	                                         Claim.Hold, store, Claim.Unhold   for each page or part
//	                                         Claim.Land -> Landed              closes the grant of whole pages
//	TransferDone ◄────────── done(code) ──── Plane.Confirm
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
