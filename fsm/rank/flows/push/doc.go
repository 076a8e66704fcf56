// Package push implements the exchange in which a sender writes chunks into the memory of a receiver.
//
// The [Source] runs at the sender. For each put, the Source sends an allocation request with the keys of the
// chunks, writes the chunks in one batched transfer into the pages that the reply grants, and then commits the
// grant or gives the grant back. The [Target] runs at the receiver, answers allocation requests from free pages,
// lets requests that do not fit wait in the allocation queue, and makes a chunk readable when the bytes have
// landed (fenced planes) or when the commit arrives (leased planes). The two flows use the shared tables of the
// rank: links and lanes, the landings (grants in force) and the allocation queue.
//
// A caller may rely on this: a put has exactly one outcome, no later than the deadline. The memory of a put is
// returned once, when nothing reads it any more. A grant of the receiver is committed, given back, or left to the
// end of the lease, and messages about a grant are addressed only to the incarnation of the receiver that granted
// the pages.
//
// Example of a put of two chunks on a leased plane:
//
//	engine   ── Put(k0, k1) ───────────────► source
//	source   ── AllocRequest(k0, k1) ──────► target   the lease counts for the source from here (M4)
//	target   ── grant 7: pages 3, 4 ───────► source   the pages are granted in the step that replies
//	source   ── one batched write ─────────► pages 3, 4
//	source   ── commit of grant 7 ─────────► target   both chunks become readable
//	target   ── committed: 7 ──────────────► source
//	source   ── Deliver(OK) ───────────────► engine
//
// If the put's deadline passes during the write, the outcome is delivered as held, the memory is returned when
// the transfer has settled, and an abort replaces the commit.
package push
