// Package nixl is the leased data plane over libnixl, NVIDIA's library for RDMA and the further transports of UCX. The
// hardware of peers stores and loads, and this process cannot observe that. The decisions are made by
// fsm/communicator, as for HCCL; the package comment of fsm/communicator describes the messages between the two ends.
// Package nixl carries out the decisions.
//
// To use the plane, pass Config.Open to runtime.WithPlane:
//
//	runtime.WithPlane(nixl.Name, nixl.Config{Agents: nixlproc.Options{}.Open, Host: "10.0.0.7", TrustedNetwork: true}.Open)
//
// The agents live in a process of their own (package nixlproc) unless Config.Agents says otherwise. "This process" below
// then means the node together with that process. If that process ends, its agents count as destroyed once the kernel
// has reported its exit. It also keeps the connection of an initiator open until the initiator's agent is destroyed,
// even if the node dies before, so that the end of a connection still proves what is said below.
//
// # Epochs are agents
//
// libnixl cannot withdraw access from a peer: memory that was deregistered is still written to, and a transfer that
// was released continues (see package libnixl). But libnixl can destroy an agent. So each epoch of a link has a
// separate agent at either end, made for the epoch and destroyed with the epoch. Both agents are named after the
// link's random session and the epoch's number:
//
//	initiator                                  target
//	hello{from, to, proof, session} ------->
//	            <-- welcome{code, pool, address}
//	offer{epoch} --------------------------->  makes an agent, registers the pool
//	            <-- accept{epoch, revoked grants, metadata}
//	makes an agent, loads the metadata, reads a byte of a page made for that purpose, sends a notice
//	            <-- met{epoch}                 the target's agent has received the notice
//	writes a byte
//	busy, idle ----------------------------->  the target polls its agent while the initiator is busy
//	fenced{epoch} <------------------------->
//	            <-- gone{epoch}                the target's agent is destroyed
//	gone{epoch} ---------------------------->  the initiator's agent is destroyed, and so was the target's if any batch
//	                                           was in flight
//
// # Until when a peer may write, and what proves the end
//
// The initiator may write under a grant from the message that gives the grant, for as long as the epoch lasts, unless
// the grant was revoked before the epoch began. The right ends when the initiator reports that the transfer is
// settled, or by Revoked. The time in which hardware may still write (R in docs/npu.md) has no bound here, so that no
// lapse of time proves anything.
//
//	at the target     Revoked: all epochs are over through which the peer could reach the pool. If the peer is on another
//	                  host, or Transports leaves no way into this process: our agent is destroyed. That agent alone
//	                  stores what arrives by TCP or shared memory, and destroying the agent takes the memory from the
//	                  NIC. If the peer is on this host and can reach into our process (cross-memory attach):
//	                  additionally the initiator has reported that the initiator's agent is destroyed, or the connection
//	                  has ended. The initiator closes the connection only after destroying the agent, and the kernel
//	                  closes the connection of a dead process only when none of the process's threads is in a system
//	                  call any more. Until then the pages stay granted.
//	at the initiator  Settled: all batches of the epoch have succeeded; or our agent is destroyed, and the target has
//	                  reported that the target's agent is destroyed, or is dead. Bytes that were on their way belong to
//	                  an agent that no longer exists.
//
// So a frozen target delays the end of transfers that were in flight to that target, and over cross-memory attach a
// frozen initiator delays a revocation. Without proof nothing is reported as settled or revoked (M4).
//
// # Polling
//
// Agents have no threads. The initiator's agent is polled by its link's goroutine while a batch is in flight, with
// pauses that grow to half a millisecond. The target's agent is polled by a separate goroutine while the peer is busy,
// which over cross-memory attach hardly ever happens. Idle agents are not polled. A copy within a host is made inside
// a call, so the bytes of a batch are limited: until the call returns, the link's goroutine does nothing else.
package nixl
