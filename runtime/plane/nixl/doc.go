// Package nixl is the data plane over libnixl: a leased plane, by which RDMA and other transports of UCX are reached
// through a library that is kept by others. Peers store and load by themselves, and nobody can watch it. What decides
// is fsm/communicator, as for HCCL: its package comment says what the ends tell each other. Here is what carries it
// out.
//
// # Epochs are agents
//
// libnixl cannot take back what a peer was given: memory that was deregistered is written to all the same, and a
// transfer that was released goes on (package libnixl). What it can do is to destroy an agent. So each epoch of a link
// has an agent of its own at either end, made for it and destroyed with it, and both are named by the link's random
// session and the epoch's number:
//
//	initiator                                  target
//	hello{who, whom, proof, session} ------->
//	            <-- welcome{code, pool, where}
//	offer{epoch} --------------------------->  makes its agent, registers the pool
//	            <-- accept{epoch, revoked grants, metadata}
//	makes its agent, loads the metadata, moves a byte from a page that is for that, sends a notice
//	            <-- met{epoch}                 has heard it
//	moves a byte back
//	busy, idle ----------------------------->  the target's agent is asked while there is something to do
//	fenced{epoch} <------------------------->
//	            <-- gone{epoch}                its agent is destroyed
//	gone{epoch} ---------------------------->  its agent is destroyed, and the target's was if anything was under way
//
// # Who may write until when, and what proves that it is over
//
// A grant is the initiator's to write under from its message on, for as long as its epoch lasts and the grant was not
// taken back before that. It ends by the initiator's word that its transfer is settled, or by Revoked. R, the time in
// which hardware may still write, has no bound here: no time proves anything.
//
//	at the target     Revoked: the epochs are over by which the peer could reach the pool. From another host, and where
//	                  Transports leaves no way into the process: our agent is destroyed, which alone stores what comes
//	                  by TCP or shared memory, and whose end takes the memory from the NIC. On one host, where the peer's
//	                  process reaches into ours (cross-memory attach): the initiator's word besides that its agent is
//	                  destroyed, or the end of its connection, which it closes after that and the kernel of a dead one
//	                  for it, when none of its threads is in a call any more. Until then the pages stay granted
//	at the initiator  Settled: all batches of the epoch have ended well; or our agent is destroyed, and the target has
//	                  said that its is, or is dead: what was on its way there lies with an agent that is no more
//
// So a target that is frozen holds up the end of what was under way to it, and over cross-memory attach an initiator
// that is frozen holds up a revocation. Without proof nothing is called settled or revoked.
//
// # Who asks
//
// Agents have no threads. An initiator's is asked by its link's goroutine while a batch is in flight, with pauses that
// grow to half a millisecond; a target's by a goroutine of its own while its peer is busy, which by cross-memory attach
// it hardly ever says. Nobody asks an idle one. A copy within a host is made inside a call, so a batch is bounded in
// bytes: until it ends the link's goroutine does nothing else.
package nixl
