// Package npu makes an Ascend NPU the device of a node. The package allocates the node's pools of pages, copies chunks
// between pools, and runs the engine's device code for fetches.
//
//	device, err := npu.Open(library, npu.Options{Device: 0})
//	node, err := runtime.Open(ctx, cfg, runtime.WithDevice(device.Open), ...)
//	...
//	node.Close(ctx)
//	device.Close()
//
// Each Device has an explicit context of AscendCL, so that a failure of the engine in this process does not affect the
// node, and a failure of the node does not affect the engine. Data planes work in the same context, on separate
// streams.
//
// # Streams
//
// There are a few streams for copies and a few for scatters, and each stream runs a single copy or scatter at a time.
// So a failure or a hang can be assigned to a stream, work on the remaining streams goes on, and the device overlaps
// this work with the reads and writes of the planes. No thread of Go waits for the device: completions of package acl
// report the ends.
//
// # Settled work
//
// Only a completion proves that work is settled, which means that nothing touches the memory any more (rule M4 in
// docs/safety.md). Work that failed, or did not end within Options.StuckAfter, gets its outcome at once, but the pages
// stay in use until the stream was aborted and destroyed and a moment has passed for the piece that was being moved. If
// a library cannot abort, or a device refuses, the attempt is repeated: the pages stay in use until an attempt
// succeeds, or until the node is closed, which then frees no memory.
//
// Example: a copy hangs. After StuckAfter the put fails; the pages cannot be granted again until the stream is
// destroyed.
//
// In a build without cgo the package is empty.
package npu
