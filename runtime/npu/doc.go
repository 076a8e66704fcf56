// Package npu is an Ascend NPU as the device of a node: it has the node's pools of pages, copies chunks
// between them, and runs the engine's device code for fetches.
//
//	device, err := npu.Open(library, npu.Options{Device: 0})
//	node, err := runtime.Open(ctx, cfg, runtime.WithDevice(device.Open), ...)
//	...
//	node.Close(ctx)
//	device.Close()
//
// There is one explicit context of AscendCL for each Device, so that neither the engine's failures in this
// process reach us nor ours the engine's. Data planes work in the same context, on streams of their own.
//
// # Streams
//
// Copies and scatters have a few streams each, and a stream one of them at a time. So whatever fails or
// hangs is known by its stream, what runs on the others goes on, and the device overlaps them all with the reads and
// writes of the planes. Nothing waits on a thread of Go's: ends come from acl's completions.
//
// # Settled
//
// Only a completion says that memory is settled. Work that failed, or did not end within Options.StuckAfter, has its
// outcome at once, but its pages stay in use until its stream was aborted and destroyed and a moment has passed for the
// piece that was under way. A library that cannot abort, or a device that refuses, is asked again and again: the pages
// stay in use for as long as it takes, or until the node is closed, which then gives no memory back.
//
// Where this was built without cgo the package is empty.
package npu
