// Package nodes contains only tests: whole nodes on NPUs, each in a separate process, with real sockets, the plane over
// the NPUs' links, and the software NPU below. Processes are killed and frozen, and faults are injected below the
// vendor's interface. The tests read the received chunks from device memory and compare every byte.
package nodes
