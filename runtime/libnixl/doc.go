// Package libnixl is a small Go face of libnixl, NVIDIA's library for moving memory between processes: agents, their
// metadata, transfers and notices, over UCX. It declares the plain C interface of libnixl itself and loads the library
// while the program runs, so it builds everywhere, links to nothing, and tells by name what is missing on a machine.
// Where it was built without cgo, Open says so and nothing else exists.
//
// # One owner
//
// An Agent has no locks: libnixl's default is that its caller serialises. So an agent, with its memory, its transfers
// and its notices, belongs to one goroutine at a time, which may hand it to another. A call that meets another one
// under way is refused with ErrShared before the library is reached; it is a defect of the caller. Agents have no part
// in each other.
//
// An agent is made without libnixl's progress thread, which costs a third of a core when there is nothing to do. So
// nothing happens unless its owner asks: Transfer.Check and Agent.Notices carry on all that the agent has under way,
// its answers to peers included. A copy within a host is made inside Post or Check, and takes as long as it takes.
//
// # Who touches memory
//
// Nothing here is a fence. Measured with 1.5.1 and UCX's transports of one host (docs/nixl.md):
//
//   - A peer that has our metadata reaches the memory also when we deregistered it, by cross-memory attach also when
//     our agent is gone: its process reaches into ours.
//   - Over TCP, and over shared memory without cross-memory attach, it is our agent that stores what a peer writes,
//     when it is asked to: once it is closed, nobody does.
//   - Transfer.Close of one that is under way gives back what it holds, and stops nothing. Bytes may still land. When
//     the agent is closed, its own process has no part in any transfer any more, and what is on its way to the peer
//     lands if the peer's agent is asked.
//
// # Ownership
//
// Who makes an agent, memory or transfer closes it, children first: closing the agent refuses with ErrBusy while it has
// any. Memory that is registered is the caller's, stays where it is, and must not be Go's.
//
// # The process
//
// Open changes the environment of the process, where nothing is said there yet: without UCX_MEM_EVENTS=n UCX patches
// the C library's functions in place, which takes it 0.4 s and is not for a process with threads; without
// UCX_DEBUG_SIGNO=0 it takes SIGHUP, with a handler that a Go program must not meet; without UCX_LOG_FILE=stderr it
// warns on standard output. The library stays loaded for good.
// A process that ends by C's exit may fault in a library of the wheel after all work is done; Go programs end without
// it.
package libnixl
