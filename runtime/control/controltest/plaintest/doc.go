// Package plaintest runs transports that speak ZeroMQ against plain sockets of libzmq, as LMCache's processes use them.
// [Run] is the test suite. Without cgo the package is empty.
package plaintest
