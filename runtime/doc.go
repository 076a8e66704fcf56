// Package runtime runs a kvferry rank on a real machine. A program embeds the package to move KV cache between the
// prefill and decode processes of an LLM serving system: the prefill process pushes chunks into pages of the decode
// process, and the decode process hands the chunks to the engine.
//
//	n, err := runtime.Open(ctx, cfg,
//		runtime.WithControl(zmq.Config{}.Opener()),
//		runtime.WithPlane("shm", shm.Open), runtime.WithPlane("tcp", tcp.Open))
//	...
//	pages, err := n.Sender().Reserve(ctx, 4)          // four pages of the pool
//	host, err := pages.Bytes(0)                        // the memory of the first page, which the engine fills
//	res, err := n.Sender().Put(ctx, runtime.Put{...})  // push the chunks to the receiver
//	err = pages.Release(ctx)                           // return the pages to the pool
//
// At the receiver, [Receiver.Get] finds chunks that are already in the pool. [Receiver.Fetch] hands chunks to the
// engine's device code, including chunks that are still at their senders (pd_delay_pull).
//
// Where the pool is the engine's own blocks (register.engine_id), [Consumer.Register] asks a rank of a producer to
// write into blocks, and [Producer.LendBlocks] notifies the producer's rank that the request is computed. The two calls
// may arrive in either order. [Node.BlockBytes] returns the memory of a block.
//
// # One loop
//
// A [Node] owns one state machine (fsm/rank). At most one goroutine at a time steps the machine. Commands of the
// engine, messages of peers and completions of transfers reach the machine through one bounded mailbox. The machine
// emits effects, and the node passes each effect to the control transport, to the pool of pages or to a data plane.
// The package imports no transport and no plane: both are passed to Open as options, so a build contains only what the
// program uses.
//
// The node has a separate goroutine that steps the machine. A small put would be slow if that goroutine had to be
// woken for each event, so the goroutine that brings an event steps the machine itself when no other goroutine is
// stepping at that moment: for example the goroutine that has read a message of a peer, that has stored a page, or
// that called Put, Get, Reserve or Release.
//
// Example, with a connected receiver: the engine calls Put. The calling goroutine posts the command and steps the
// machine, which emits an allocation request. The control transport sends the request and later posts the receiver's
// reply; the transport's goroutine steps the machine, which emits a transfer. When the data plane reports that the
// transfer is done, the machine delivers the outcome, and Put returns.
//
// # Ownership
//
// Pages belong to the holder of their [Pages] handle. A Put borrows the pages until the Put has ended. If a Put ends
// while hardware may still access the pages, the node keeps the pages until that is over, and a Release that is called
// in between waits. Cancelling a context aborts the command; the call still waits for the command's outcome, at most
// until the command's own deadline, so that no caller ever holds pages that are in flight.
//
// A Fetch calls the engine's Scatter function on the goroutine of the caller, and returns only when no call of
// Scatter is running. The memory into which Scatter stores never belongs to the node. A chunk that could not be
// fetched is a cache miss, and the engine computes it.
//
// A slice from [Pages.Bytes] is valid until Release; after Release the handle refuses all calls. A [Node.Close] unmaps
// the pool only if every handle has been released.
//
// An engine in a process of its own can work in the same memory: open the node with [WithAttachable] and give the
// engine the file of [Node.Mapping]. Handles stay in the process of the node, where [Pages.MappedPage] reports the
// locations of the pages.
//
// # Failed assertions
//
// A machine that finds its own state impossible panics, and the panic ends the process. [WithFailureContainment]
// contains such a failure: the rank stops, its memory stays mapped, a report is written and [Node.Failed] is closed,
// while other ranks and the engine continue.
package runtime
