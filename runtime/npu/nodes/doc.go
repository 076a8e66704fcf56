// Package nodes is tests and nothing else: whole nodes on NPUs, each in a process of its own, with real sockets, the
// plane over the NPUs' links, and the software NPU below. Processes are killed and frozen, and faults are put below the
// vendor's interface; what arrives is compared byte for byte, from device memory.
package nodes
