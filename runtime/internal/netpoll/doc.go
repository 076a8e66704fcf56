// Package netpoll makes stream connections faster to wake up on: for a while after each message that leaves, it polls
// for what arrives before it sleeps.
//
// On a machine whose other core is idle, a sleeping thread is woken in 50 µs, and waking it costs the waking thread
// 15 µs. A reply between two processes needs two such wake-ups. Polling needs none; docs/benchmarks.md, "Small puts",
// has the measurement.
//
// All connections that were passed to [Take] share one poller: a goroutine with an epoll instance of its own, which
// wakes the goroutines that read and write the connections. While it polls, it yields its core to other processes
// between two polls, so that polling uses only time that nobody else needs. When it sleeps, it sleeps in the poller
// of Go's runtime.
//
// Polling stops where it does not pay: each connection counts how often something arrived soon after it had sent. For
// example, with a poll time of 100 µs: a sender polls for the reply to each of its requests, and the receiver, after
// its reply, polls for the next request only if that tends to arrive within 100 µs. When nothing is sent, nothing is
// polled.
//
//	conn = netpoll.Take(conn, 100*time.Microsecond) // The returned net.Conn replaces conn.
package netpoll
