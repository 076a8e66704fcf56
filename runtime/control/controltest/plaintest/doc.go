// Package plaintest runs transports that speak ZeroMQ against plain sockets of libzmq, like the sockets of LMCache's
// processes. [Run] is the test suite. Without cgo the package is empty.
package plaintest
