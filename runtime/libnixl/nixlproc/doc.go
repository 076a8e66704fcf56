// Package nixlproc runs agents of libnixl in a process of their own, so that what a peer does to the library happens
// there and not in the node.
//
// libnixl trusts its peers. Metadata that a peer has changed can end the process that loads the metadata, and over
// UCX's tcp a process that reaches an agent can read and write every address of the agent's process. The child process
// of this package has nothing else of the node: it maps the memory that peers may reach anyway, and its open files are
// sockets to the node, standard error, the library's own files, and connections that only have to stay open (see
// below).
//
//	func main() {
//		if nixlproc.IsChild() {
//			nixlproc.Main()
//		}
//		…
//	}
//
//	host, err := nixlproc.Options{}.Open(ctx, nixlproc.HostConfig{Memory: regions})
//	agent, err := host.NewAgent(libnixl.AgentOptions{Name: "a"}, nil)
//
// A Host has the same interface whether its agents live in a child (Options.Open) or in this process (InProcess), so
// that planes need not know.
//
// # Addresses
//
// Callers name memory by its address in this process. The child maps each region at an address that does not change
// when the child is started anew, and Host.PeerAddress says at which address peers find a region. Remote addresses of
// transfers are the peer's and are passed on as they are.
//
// # The end of a child
//
// A child ends by a fault of the library, by a signal, or because this package kills it: a call that takes longer
// than Options.CallTimeout, an answer that is malformed, and an agent that the library does not destroy are reasons. All
// agents of the child end with it. No call reports the end of the child before the kernel has reported that the
// process has exited, because until then its threads may still store into the memory; so Agent.Close with a nil error
// proves what it proves in one process: this host's side of the agent takes no part in any transfer any more (M4).
// After that a new child is started, with pauses that grow from a tenth of a second to half a minute while children
// end early.
//
// # The end of the node
//
// When the node dies, the kernel closes its connections before it kills the child. A peer that takes the end of the
// node's connection for the end of all its stores would be wrong for that moment. So NewAgent takes a connection that
// the child keeps open for as long as the agent exists: the kernel ends the connection only when both processes are
// dead.
package nixlproc
