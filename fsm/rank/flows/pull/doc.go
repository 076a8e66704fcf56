// Package pull implements the exchange in which a sender announces where its chunks are and a receiver reads
// them.
//
// The [Source] runs at the sender. For each put, the Source leases the pages to the receiver, sends an offer
// (PullReadyNotif) that names keys, pages and the lease, and returns the memory when the lease has ended. The
// [Target] runs at the receiver. The Target reads offers on arrival, or, with [ReadSettings].Delay, keeps offers
// until the engine fetches the chunks (package deferred). When nothing reads an offer any more, the Target sends
// a done message to the sender.
//
// A caller may rely on this: a put has exactly one outcome, no later than the deadline. The memory of a put is
// returned once: when the reader's done message, the plane or the end of the lease shows that nobody reads the
// pages any more. The number of leased pages never exceeds the high-water mark (S6).
//
// Example of an eager read of one chunk on a leased plane:
//
//	engine   ── Put(k0 in page 5) ─────────► source
//	source   ── offer: k0, page 5, lease ──► target   the lease begins in the step that sends the offer (M4)
//	target   ── reads page 5 ──────────────► source's memory
//	target   ── acknowledgement ───────────► source   the put is delivered as OK, and as held
//	target   ── done message ──────────────► source   page 5 is returned to the engine
//
// The acknowledgement gives the outcome and the done message gives the memory, in either order. If both are lost,
// the put ends no later than the deadline, and page 5 is returned when the lease is over.
package pull
