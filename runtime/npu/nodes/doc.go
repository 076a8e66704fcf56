// Package nodes contains only tests: whole nodes on NPUs, each in a process of its own, with real sockets, the plane
// over the NPUs' links, and the software NPU below. Processes are killed and frozen, and faults are injected below the
// vendor's interface. What arrives is read from device memory and compared byte for byte.
package nodes
