// Package epochs contains the code that the leased planes over communicators (runtime/hccl and runtime/plane/nixl)
// share. The package runs the state machines of fsm/communicator: a machine for each link that this node opens
// ([OutgoingLinks]), and a machine for all links that peers open to this node ([IncomingLinks]). A plane carries out
// the decisions of the machines with its library, by implementing [Executor] and [TargetExecutor]. Package epochs
// itself knows no library.
//
// An epoch is a communicator (or pair of agents) of a link. When a grant is revoked, the link's epoch is ended as a
// whole, because the library cannot withdraw a single grant; the next epoch has a new number (rule M4 of
// docs/safety.md). This package also has:
//
//   - [Channel], the connection on which two planes agree about epochs; the end of this connection proves that the
//     peer's process has ended its part;
//   - [SplitIntoBatches], which cuts a transfer into calls of the library.
//
// What a caller may rely on: the executor of a link is called on that link's goroutine only (except for ReadFrames).
// Nothing is reported as Settled or Revoked without proof (M4). If there is no proof when a plane closes,
// [OutgoingLinks.CheckProven] and [IncomingLinks.CheckProven] return an error, and the memory must stay mapped.
//
// Example, the end of a transfer that is still in flight when its grant is revoked:
//
//	target                                    initiator
//	IncomingLinks.Expel(peer)
//	fenced{epoch} ──────────────────────────► the machine decides TearDown; Executor.TearDown destroys our end
//	                                          fails the transfer, not settled
//	◄────────────────────────────── gone{epoch}
//	Endpoint.StartClose, our end destroyed; gone() ► Revoked
//	gone{epoch} ────────────────────────────► TornDown ► Settled
package epochs
