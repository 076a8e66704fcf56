// Package npuengine stands in for an inference engine on an NPU, in demos and tests. It makes the content of pages on
// the device and reads it there. Like a real engine in the same process it has a context of its own beside the node's,
// and it keeps nothing on the host. In a build without cgo the package is empty.
package npuengine
