// Package attach lets inference engines that run in separate processes use a node. An engine attaches over a Unix
// socket, maps the node's page pool into the engine's memory as a file, and then makes the same calls that package
// runtime offers to an engine in the node's own process. docs/protocol-agent.md specifies the messages on the socket.
//
//	n, err := runtime.Open(ctx, cfg, runtime.WithAttachable(), ...)
//	s, err := attach.Serve(attach.Config{Node: n, Path: "/run/kvferry/agent.sock"})
//	...
//	err = s.Close(ctx)
//	err = n.Close(ctx)
//
// The state machine in fsm/session makes all decisions: the machine tracks which calls are open and which handles
// (pages, shared chunks, prefills) each engine holds. This package supplies the sockets, watches the processes that
// connect, and carries out the calls. Each call runs on a separate goroutine, except that the quick calls of an engine
// share one goroutine, which runs the calls in order. An engine may have at most Config.Window calls open.
//
// Only processes of the same user or of root may attach, and one process may use only a share of the sessions. An
// attached engine is trusted with the bytes of chunks in the same way as an engine in this process. An attached engine
// cannot change the records that say which pages belong to which owner.
//
// Example: an engine connects, the first message attaches the engine, and the reply passes the pool's file descriptor.
// The engine calls Reserve and receives page indexes, writes a chunk into these pages through the mapping, and calls
// Put. When the engine's process is killed, the server notices the end of the process, aborts the call that is still
// open, and releases the pages once no transfer uses the pages.
package attach
