// Package npu makes an Ascend NPU the device of a node. It allocates the node's pools of pages, copies chunks between
// them, and runs the engine's device code for fetches.
//
//	device, err := npu.Open(library, npu.Options{Device: 0})
//	node, err := runtime.Open(ctx, cfg, runtime.WithDevice(device.Open), ...)
//	...
//	node.Close(ctx)
//	device.Close()
//
// Each Device has one explicit context of AscendCL, so that failures of the engine in this process do not affect the
// node, nor failures of the node the engine. Data planes work in the same context, on streams of their own.
//
// # Streams
//
// Copies and scatters have a few streams each, and each stream runs one of them at a time. So a failure or a hang can
// be assigned to its stream, work on the other streams goes on, and the device overlaps it with the reads and writes of
// the planes. No thread of Go waits for the device: completions of package acl report the ends.
//
// # Settled work
//
// Only a completion proves that nothing touches the memory any more (it is settled). Work that failed, or did not end
// within Options.StuckAfter, gets its outcome at once. Its pages stay in use until its stream was aborted and destroyed
// and a moment has passed for the piece that was being moved. If a library cannot abort, or a device refuses, the
// attempt is repeated: the pages stay in use until it succeeds, or until the node is closed, which then frees no
// memory.
//
// Example: a copy hangs. After StuckAfter the put fails; its pages cannot be granted again until the stream is
// destroyed.
//
// In a build without cgo the package is empty.
package npu
