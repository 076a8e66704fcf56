// Package netpoll reduces the latency of replies on stream connections: for a while after each message that leaves,
// the package polls for the reply before sleeping.
//
// On a machine with an idle core, a sleeping thread is woken in 50 µs, and the wake-up costs the waking thread 15 µs.
// A reply between two processes needs two wake-ups. Polling needs none; docs/benchmarks.md, "Small puts", has the
// measurement.
//
// All connections that were passed to [Take] share a poller: a goroutine with a separate epoll instance, which wakes
// the goroutines that read and write the connections. While polling, the poller yields the core to the rest of the
// processes between two polls, so that polling uses only time that nobody else needs. The poller sleeps in the poller
// of Go's runtime.
//
// Polling stops where polling does not pay: each connection counts how often something arrived soon after a message
// was sent. For example, with a poll time of 100 µs: a sender polls for the reply to each request, and the receiver,
// after each reply, polls for the next request only if that tends to arrive within 100 µs. When nothing is sent,
// nothing is polled.
//
//	conn = netpoll.Take(conn, 100*time.Microsecond) // The returned net.Conn replaces conn.
package netpoll
