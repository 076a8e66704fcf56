// Package libnixl is a Go binding of libnixl, NVIDIA's library for moving memory between processes: agents, their
// metadata, transfers and notices, over UCX. The package declares the plain C interface of libnixl itself and loads the
// library while the program runs. So the program builds everywhere, links to nothing, and can name the functions that a
// machine's library lacks. In a build without cgo, Open returns an error and nothing else can be used.
//
//	lib, err := libnixl.Open(libnixl.Options{})
//	agent, err := lib.NewAgent(libnixl.AgentOptions{Name: "a"})
//	memory, err := agent.RegisterMemory(libnixl.Host, libnixl.Range{Address: base, Bytes: size})
//	peer, err := agent.LoadMetadata(metadataOfPeer)
//	t, err := agent.NewTransfer(libnixl.TransferOptions{Operation: libnixl.Write, Peer: peer, Pairs: pairs})
//	done, err := t.Post()
//	for !done && err == nil {
//		done, err = t.Check()
//	}
//
// # Ownership by a goroutine
//
// An Agent has no locks, because libnixl by default expects the caller to serialize calls. So an agent, with its
// memory, its transfers and its notices, belongs to one goroutine at a time, which may pass the agent on. Two
// simultaneous calls are a defect of the caller: the second call is refused with ErrShared before the library is
// reached. Different agents are independent.
//
// An agent is made without libnixl's progress thread, which costs a third of a core even when idle. So nothing happens
// unless the owner polls: Transfer.Check and Agent.PollNotices advance everything that the agent has in flight,
// including its replies to peers. A copy within a host is made inside Post or Check, which then block for the time of
// the copy.
//
// # Accesses to memory after a close
//
// Nothing here is a fence. Measured with libnixl 1.5.1 and UCX's transports within a host (docs/nixl.md):
//
//   - A peer that has our metadata still reaches the memory after the deregistration. With cross-memory attach the peer
//     reaches the memory even after our agent is gone, because the peer's process writes into ours.
//   - Over TCP, and over shared memory without cross-memory attach, our own agent stores what a peer writes, when the
//     agent is polled: once the agent is closed, nothing stores.
//   - Transfer.Close of a transfer in flight frees its resources and stops nothing: bytes may still land. After the
//     agent is closed, this process takes no part in any transfer any more, and bytes on their way to the peer land if
//     the peer's agent is polled.
//
// # Ownership
//
// The caller that makes an agent, memory or transfer closes the object, children first: closing the agent fails with
// ErrBusy while a child is open. Registered memory belongs to the caller, must not move, and must not be Go's.
//
// # The process
//
// Open sets environment variables of the process that are not set yet. Without UCX_MEM_EVENTS=n UCX patches functions
// of the C library in place, which takes 0.4 s and is not safe in a process with threads. Without UCX_DEBUG_SIGNO=0 UCX
// takes SIGHUP, with a handler that does not work in a Go program. Without UCX_LOG_FILE=stderr UCX writes warnings to
// standard output. The library stays loaded for good. A process that ends by C's exit may crash in a library of the
// wheel after all work is done; Go programs end without C's exit.
package libnixl
