// Package npuengine stands in for an inference engine on an NPU, in demos and tests: it makes the content of pages, and
// looks at it, where it is, on the device. It has a context of its own beside the node's, as a real engine does in the
// same process, and keeps nothing on the host. Where this was built without cgo the package is empty.
package npuengine
