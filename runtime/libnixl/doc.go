// Package libnixl is a Go binding of libnixl, NVIDIA's library for moving memory between processes: agents, their
// metadata, transfers and notices, over UCX. It declares the plain C interface of libnixl itself and loads the library
// while the program runs. So it builds everywhere, links to nothing, and names the functions that a machine's library
// lacks. In a build without cgo, Open returns an error and nothing else can be used.
//
//	lib, err := libnixl.Open(libnixl.Options{})
//	agent, err := lib.NewAgent(libnixl.AgentOptions{Name: "a"})
//	memory, err := agent.Register(libnixl.Host, libnixl.Range{Address: base, Bytes: size})
//	peer, err := agent.Load(metadataOfPeer)
//	t, err := agent.NewTransfer(libnixl.TransferOptions{Operation: libnixl.Write, Peer: peer, Pairs: pairs})
//	done, err := t.Post()
//	for !done && err == nil {
//		done, err = t.Check()
//	}
//
// # One owner
//
// An Agent has no locks, because libnixl's default is that its caller serializes calls. So an agent, with its memory,
// its transfers and its notices, belongs to one goroutine at a time, which may hand it to another. A call during
// another call is refused with ErrShared before the library is reached; it is a defect of the caller. Different agents
// are independent.
//
// An agent is made without libnixl's progress thread, which costs a third of a core even when idle. So nothing happens
// unless its owner polls: Transfer.Check and Agent.Notices advance everything that the agent has in flight, including
// its replies to peers. A copy within a host is made inside Post or Check, and takes as long as it takes.
//
// # Who touches memory
//
// Nothing here is a fence. Measured with 1.5.1 and UCX's transports of one host (docs/nixl.md):
//
//   - A peer that has our metadata still reaches the memory after it was deregistered. With cross-memory attach it
//     reaches it even after our agent is gone, because its process writes into ours.
//   - Over TCP, and over shared memory without cross-memory attach, our own agent stores what a peer writes, when it is
//     polled: once it is closed, nothing stores.
//   - Transfer.Close of a transfer in flight frees its resources and stops nothing: bytes may still land. After the
//     agent is closed, its own process takes no part in any transfer any more, and bytes on their way to the peer land
//     if the peer's agent is polled.
//
// # Ownership
//
// The caller that makes an agent, memory or transfer closes it, children first: closing the agent fails with ErrBusy
// while any are open. Registered memory belongs to the caller, must not move, and must not be Go's.
//
// # The process
//
// Open changes the environment of the process where nothing is set yet. Without UCX_MEM_EVENTS=n UCX patches functions
// of the C library in place, which takes 0.4 s and is not safe in a process with threads. Without UCX_DEBUG_SIGNO=0 it
// takes SIGHUP, with a handler that does not work in a Go program. Without UCX_LOG_FILE=stderr it writes warnings to
// standard output. The library stays loaded for good. A process that ends by C's exit may crash in a library of the
// wheel after all work is done; Go programs end without it.
package libnixl
