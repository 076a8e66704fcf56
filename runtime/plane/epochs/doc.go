// Package epochs contains what the leased planes over communicators (runtime/hccl and runtime/plane/nixl) share. It
// runs the state machines of fsm/communicator: one for each link that this node opens ([Links]), and one for all
// links that peers open to it ([Arrivals]). A plane carries out their decisions with its library, by implementing
// [Hands] and [TargetHands]. This package itself knows no library.
//
// An epoch is one communicator (or pair of agents) of a link. When a grant is revoked, the link's epoch is ended as a
// whole, because the library cannot withdraw a single grant; the next epoch has another number (rule M4 of
// docs/safety.md). This package also has:
//
//   - [Channel], the connection on which two planes agree about epochs, and whose end proves that the other process
//     has ended its part;
//   - [Batches], which cuts a transfer into calls of the library.
//
// What a caller may rely on: the hands of a link are called on that link's goroutine only (except Listen). Nothing is
// reported as Settled or Revoked without proof. If there is no proof when a plane closes, [Links.Unproven] and
// [Arrivals.Reachable] return an error, and the memory must stay mapped.
//
// Example, the end of a transfer that is still in flight when its grant is revoked:
//
//	target                                    initiator
//	Arrivals.Expel(peer)
//	fenced{epoch} ──────────────────────────► the machine decides TearDown; Hands.TearDown destroys our end
//	                                          fails the transfer, not settled
//	◄────────────────────────────── gone{epoch}
//	End.Leave, End destroyed; gone() ► Revoked
//	gone{epoch} ────────────────────────────► TornDown ► Settled
package epochs
