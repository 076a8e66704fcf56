// Package attach lets engines of other processes work with a node: they attach over a Unix socket, have the node's pool
// as a file that they map, and call what package runtime offers by the same words. docs/protocol-agent.md is what is
// said on the socket.
//
//	n, err := runtime.Open(ctx, cfg, runtime.WithAttachable(), ...)
//	s, err := attach.Serve(attach.Config{Node: n, Path: "/run/kvferry/agent.sock"})
//	...
//	err = s.Close(ctx)
//	err = n.Close(ctx)
//
// What decides is the machine of fsm/session: which calls are open, and what an engine holds. Here are its sockets, the
// processes at their other ends, and the calls. A call runs on a goroutine of its own, of which there are at most
// Config.Window for each engine.
//
// Only processes of the same user attach, or root's, and one process has a share of the places. An attached engine is
// trusted with the bytes of chunks, as one in this process would be; it cannot touch what tells whose a page is.
package attach
