// Package put contains what the two sources of puts, package push and package pull, have in common: the [Row] of a put,
// with its command, its peer and the request to the peer that is in flight, and the [Table] of puts with the queues in
// which puts wait for the lanes (connections) of their peers. The flow that embeds a Row decides what is requested and
// what the reply means.
//
// A flow may rely on this:
//
//   - The number of requests in flight on a lane never exceeds the lane's window.
//   - A reply that is overdue closes the connection, so a late reply is never taken for the reply to another request.
//   - A put that is retried is sent before all puts that had not been sent yet when the put was first sent.
//   - No put waits for a lane while a circuit breaker is open for the put.
//
// Example, with a window of 1:
//
//	put 1 and put 2 are queued   the flow sends put 1, which takes the alloc lane
//	ReplyTimeout passes          OnReplyTimeout closes the lane; the attempt of put 1 has failed
//	Unanswered                   put 1 is queued again, before put 2, because put 1 was sent earlier
//	the lane is open again       the flow sends put 1; the reply arrives and frees the lane for put 2
package put
