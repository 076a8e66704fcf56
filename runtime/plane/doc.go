// Package plane defines the data plane of a node: the memory that peers reach, the fences that protect each page, and
// the interface through which the event loop moves pages to and from peers.
//
// A node opens its pools first (a [Pool] for fenced planes, a [LeasedPool] for leased planes), then the planes that
// serve these pools. Each plane is a package: shm and tcp are fenced, nixl and runtime/hccl are leased.
//
// What a caller may rely on:
//
//   - No page is stored into unless a write grant that covers the page is in force, and no page is leased to readers
//     while a peer may store into the page (rules M1 to M3 of docs/safety.md). The pool enforces this, whatever a peer
//     sends.
//   - Every effect that owes a completion is completed exactly once, even if the peer is frozen, the link is lost or
//     the plane is closed.
//   - No method blocks, except for Close and the constructors.
//   - A call that makes no sense, for example with a page that does not exist, is a defect of the machine and panics
//     with "BUG:". Bytes from a peer never cause a panic; a violation of the protocol ends in an effects.Code.
//
// # Writes
//
// Every store into a pool is made by the process that owns the pool, or by an engine's process that the owner has
// attached. An attached engine owns the pages that the machine gave to the engine, as if the engine were part of this
// process. Peers map the pool read-only, or send bytes that the owner's process stores. A push is therefore a request
// of the initiator that the target's planes carry out, and the [Pool] alone decides, page by page, whether a plane may
// store:
//
//	initiator                                target
//	                                         Pool.Grant, told to the initiator by a message
//	Plane.Transfer ── push(grant, pairs) ──► Pool.ClaimWrite
//	                                         Hold, store, Release of a claim   for each page or part
//	                                         WriteClaim.Land -> Landed         closes the grant of whole pages
//	TransferDone ◄────────── ended(code) ──── Plane.Confirm
//
// # Reads
//
// A read goes the other way: the owner grants a read lease on pages that hold content, and the peer fetches them. Any
// number of read leases may cover a page, and any number of reads may be in flight under a lease. Nobody stores into
// the page until all of these leases are revoked. A peer on the same host reads the memory without help, as long as
// the permits of the pool stand (see read_permit.go), and the owner's process takes no part. To peers on remote hosts
// the owner's plane sends the bytes:
//
//	reader                                   owner
//	                                         Pool.Grant{Read}, told to the reader by a message
//	Plane.Transfer ── startReaders(grant, pairs) ──► Pool.ClaimRead
//	store ◄───────── pages ───────────────── Hold, send, Release of a claim    for each part of a page
//	TransferDone ◄── ended(code) ────────────
//
// A read succeeds only if the lease stood until the last byte was read. A successful read has delivered exactly the
// content that the owner had leased, whatever the owner did with the pages afterwards. A partial read counts as
// failed.
//
// # One pool, several planes
//
// Publish, Grant and Revoke belong to the pool, because all planes share its pages and its grants. Each import,
// transfer and confirmation belongs to a single plane. The [IDs] of the node number all links and landings, so a
// number is unique over all planes: [Plane.Drop], [Plane.Cancel] and [Plane.Confirm] ignore the numbers of every plane
// but their own, and the loop need not remember which plane gave a number.
//
// # Completions
//
// Planes report completions to a [Sink], which never blocks. Each event is allocated for a single delivery and belongs
// to the receiver of the event.
//
// # Example
//
// A receiving node grants two pages, and a peer pushes into them:
//
//	pool, err := plane.NewPool(plane.PoolConfig{Pages: 64, PageBytes: 1 << 20, Sink: mailbox})
//	p, err := shm.Config{Dir: path}.Open(ctx, plane.Env{Pool: pool, Sink: mailbox, ...})
//	pool.Grant(&effects.Grant{ID: 7, Peer: sender, Pages: pages}) // The reply to the sender names grant 7.
//	// The sender's plane pushes; this node's plane stores both pages and posts effects.Landed to the mailbox.
//	p.Confirm(landed.Landing, effects.OK) // Only now does the sender's plane post TransferDone.
package plane
