// Package runtime runs one kvferry rank against the real world: embed it to move KV cache between the
// prefill and decode processes of a serving system.
//
//	n, err := runtime.Open(ctx, cfg,
//		runtime.WithControl(zmq.Config{}.Opener()),
//		runtime.WithPlane("shm", shm.Open), runtime.WithPlane("tcp", tcp.Open))
//	...
//	pages, err := n.Sender().Reserve(ctx, 4)          // memory of the pool
//	host, err := pages.Host(0)                         // fill it
//	res, err := n.Sender().Put(ctx, runtime.Put{...})  // push it
//	err = pages.Release(ctx)                           // give it back
//
// At the other end [Receiver.Get] finds chunks that are there, and [Receiver.Fetch] hands them to the engine's
// device code, those that are still at their senders (pd_delay_pull) included.
//
// Where the pool is the engine's own blocks (register.engine_id), [Consumer.Register] has blocks written by the rank
// that [Producer.Finished] them, whichever is first, and [Node.Block] is their memory.
//
// # One loop
//
// A [Node] owns one machine (fsm/rank), which one goroutine at a time steps. Commands, peers' bytes and
// completions reach it through one bounded mailbox; what the machine wants done, it hands
// to the control transport, the pool of pages and the data planes. None of those is imported here:
// they are handed in as options, so a build carries only what it uses.
//
// The node has a goroutine that steps the machine. So that a small put does not wait until that one has been woken for
// each of its events, the goroutine that brings an event steps the machine itself if nobody does just then: the one that
// read a peer's message, that stored a page, or that called Put, Get, Reserve or Release.
//
// # Ownership
//
// Pages belong to whoever holds their [Pages] handle. A Put borrows them until it has ended; a Put
// that ends while the hardware may still touch them keeps them until it is safe, and a Release in
// between waits for that by itself. Cancelling a context takes the command back and still waits,
// bounded by the command's own deadline, for its outcome: no caller ever holds pages in flight.
//
// A Fetch calls the engine's Scatter on the goroutine of its caller, and returns when no call of it runs: the
// memory that Scatter stores into is never the node's. What fails to be fetched is a miss; the engine computes it.
//
// A slice from [Pages.Host] is valid until Release; the handle refuses afterwards. The pool is
// unmapped only by a [Node.Close] that found no handle out.
//
// An engine in a process of its own works in the same memory: open the node with [WithAttachable] and give it the file
// of [Node.Mapping]. Handles stay with the process of the node, which says where their pages are ([Pages.At]).
//
// # Defects of our own
//
// A machine that finds its own state impossible panics, and that ends the process. [WithFailAlone] contains it: the
// rank ends, its memory stays held, a report is written and [Node.Failed] is closed; other ranks and the engine go
// on.
package runtime
