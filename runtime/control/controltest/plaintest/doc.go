// Package plaintest holds transports that speak ZeroMQ to plain sockets of libzmq, as LMCache's processes have them: [Run]
// is the suite. Without cgo it is empty.
package plaintest
