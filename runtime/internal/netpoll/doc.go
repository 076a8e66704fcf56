// Package netpoll polls for what arrives on stream connections, for a while after each message that leaves, before it
// sleeps.
//
// A thread that sleeps is woken in 50 µs on a machine whose other core is idle, and waking it takes 15 µs of whoever
// does; an answer between two processes needs two of them. Polling needs none: docs/benchmarks.md, "Small puts".
//
// All connections of a process that are taken have one poller, a goroutine with an epoll instance of its own, which
// wakes the goroutines that read and write them. While it polls it yields its core to other processes between two
// looks, so that polling takes time that nobody wants. When it sleeps, it sleeps in the poller of Go's runtime.
//
// Polling stops where it does not pay: each connection notes how often something arrived in time after it sent. For
// example, with 100 µs: a sender polls for the answer to each of its questions, and the receiver, which has answered,
// polls for the next question only if that tends to come within 100 µs. When nothing is sent, nothing is polled.
package netpoll
