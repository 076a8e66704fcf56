// Package npuengine stands in for an inference engine on an NPU, in demos and tests. The engine makes the content of
// pages on the device and reads the content there. Like a real engine in the same process this engine has a separate
// context, and keeps nothing on the host. In a build without cgo the package is empty.
package npuengine
