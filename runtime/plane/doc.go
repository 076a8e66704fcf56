// Package plane defines the data plane of a node: the memory that peers reach, the fences that protect each page of
// it, and the interface through which the event loop moves pages to and from peers.
//
// A node opens its pools first (a [Pool] for fenced planes, a [LeasedPool] for leased ones), then one or more planes
// over them. The planes themselves are in folders of their own: shm and tcp are fenced, nixl and runtime/hccl are
// leased.
//
// What a caller may rely on:
//
//   - No page is stored into unless a write grant that covers it stands, and no page is lent to readers while anybody
//     may store into it (rules M1 to M3 of docs/safety.md). The pool enforces this, whatever a peer sends.
//   - Every effect that owes a completion gets exactly one, even if the peer is frozen, the link is lost or the plane
//     is closed.
//   - No method blocks, except for Close and the constructors.
//   - What the machine asks must make sense, because only a defect of the machine can ask for a page that does not
//     exist. Such calls panic with "BUG:". What a peer sends never panics; it ends in an effects.Code.
//
// # Writes
//
// Every store into a pool is made by the process that owns the pool, or by an engine's process that the owner has
// attached. An attached engine owns the pages that the machine gave it as if it were part of this process. Peers map
// the pool read-only, or send bytes that the owner's process stores. A push is therefore a request of the initiator
// that the target's planes carry out, and the [Pool] alone decides, page by page, whether they may:
//
//		initiator                                target
//		                                         Pool.Grant, told to the initiator by a message
//		Plane.Transfer ── push(grant, pairs) ──► Pool.Claim
//	                                        Pool.ClaimWrite
//	                                        Hold, store, Release of a claim   for each page or part
//	                                        WriteClaim.Land -> Landed         closes the grant of whole pages
//		TransferDone ◄────────── done(code) ──── Plane.Confirm
//
// # Reads
//
// A read goes the other way: the owner grants a read lease on pages that hold content, and the peer fetches them. Any
// number of read leases may cover a page, and any number of reads may be in flight under one lease. Nobody stores
// into the page until all of these leases are revoked. A peer on the same host reads the memory by itself, as long as
// the permits of the pool stand (see read_permit.go), and the owner's process takes no part in it. For other peers
// the owner's plane sends the bytes:
//
//	reader                                   owner
//	                                         Pool.Grant{Read}, told to the reader by a message
//	Plane.Transfer ── read(grant, pairs) ──► Pool.ClaimRead
//	store ◄───────── pages ───────────────── Hold, send, Release of a claim    for each part of a page
//	TransferDone ◄── done(code) ────────────
//
// A read succeeds only if its lease stood until the last byte was read, so that it delivered exactly the content that
// the owner had lent, whatever the owner did with its pages afterwards. A read that was only partly made counts as
// failed.
// # One pool, several planes
//
// Publish, Grant and Revoke belong to the pool, because all planes share its pages and its grants. Imports, transfers
// and confirmations belong to one plane each. Links and landings are numbered by one [IDs] and so are unique over all
// planes of a node: [Plane.Drop], [Plane.Cancel] and [Plane.Confirm] ignore the numbers of other planes, and the loop
// need not remember which plane gave a number.
//
// # Completions
//
// Planes report completions to a [Sink], which never blocks. Each event is allocated for its one delivery and belongs
// to the receiver of the event.
//
// # Example
//
// A receiving node grants two pages, and a peer pushes into them:
//
//	pool, err := plane.NewPool(plane.PoolConfig{Pages: 64, PageBytes: 1 << 20, Sink: mailbox})
//	p, err := shm.Opener(path)(ctx, plane.Env{Pool: pool, Sink: mailbox, ...})
//	pool.Grant(&effects.Grant{ID: 7, Peer: sender, Pages: pages}) // The reply to the sender names grant 7.
//	// The sender's plane pushes; this node's plane stores both pages and posts effects.Landed to the mailbox.
//	p.Confirm(landed.Landing, effects.OK) // Only now does the sender's plane post TransferDone.
package plane
