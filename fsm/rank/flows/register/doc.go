// Package register implements registration-driven push: a Consumer registers blocks that it wants to have written, a
// Producer lends blocks that it has finished, and the write starts when both have happened. At both ends the blocks
// belong to the engine: a command names the blocks by number and lends them to the agent (memory.Pool.ClaimPage). Which
// page is in which block follows from the descriptions of both caches in the hellos (package geometry). Consumer and
// Producer are flows over rooms that other flows use as well.
//
// Example with a producer of two ranks:
//
//	consumer: Register r1, blocks 4-7   grants the pages of rank 0 and of rank 1, and sends a registration to each
//	producer rank 0                     parks the registration: r1 is not finished
//	producer rank 0: Finished r1        matches, writes its pages, and answers OK
//	producer rank 1                     likewise
//	consumer                            both parts are complete: outcome OK, the blocks belong to the engine again
//
// # The consumer
//
// A Register becomes a reception and, for each producer rank that has a part of the blocks, a part. In the step that
// sends the registration of a part, the pages that this rank writes are granted to the rank, all under a single
// grant. So each rank can store into the pages of its own part only, and once. The registration is a request, and the
// reply arrives when nothing of the rank writes any more.
//
//		linking ──► registering ──► removed
//		                 └──► withdrawing ──► removed
//
//	  - A reception ends well only when every part did: a rank that answers twice counts as one rank, and no rank
//	    stands for another. On fenced planes a part is complete when the plane reports that all pages of the part
//	    landed. On leased planes a part is complete when the reply says so within the time of the grant.
//	  - Any other event that ends a part (time, an abort, a failed rank) ends the whole reception: the outcome is
//	    delivered at once, and open parts are withdrawn. The blocks return to the engine when no write can land any
//	    more: each grant has landed, or was ended by a reply or by the plane's proof (Revoked), never by time alone
//	    (M4).
//	  - Receptions are requested by the node's own engine, so no producer has a share of receptions or grants. There is
//	    a grant for each possible part. A part has a grant only while the part occupies a place on the peer's lane, so
//	    a slow peer holds at most as many grants as the lane has places, plus the grants that are being ended.
//	  - Each registration repeats a checksum of both cache descriptions. If the producer has a different checksum, a
//	    hello was damaged: nothing is decided by such a hello, the handshake is repeated, and the part is registered
//	    again. If the producers' descriptions do not fit, the reception fails, and the handshake is repeated if that
//	    has not happened recently.
//	  - Lost replies: the registration is sent again, as the same operation under the same grant, while the producer's
//	    incarnation is the same. A new incarnation has none of the computed blocks, and the part fails.
//
// # The producer
//
// A Finished becomes a batch, which lends the blocks for the time of a lease. A registration is a row from the
// arrival of the message until the answer.
//
//		parked ──► linking ──► writing ──► settling ──► answered
//
//	  - A batch and a registration match by the name of the transfer, if either has one. Otherwise they match by the
//	    name of the request, or by that name without the digits that an engine of vLLM appends, and then only if there
//	    is a single candidate. If there are several candidates, none is written.
//	  - A batch is written for a single request of a single consumer, once to each rank of the consumer. The batch ends
//	    when each of these ranks was answered; when the lease is over, which heartbeats extend and nothing shortens; or
//	    by a command of the engine. From then on no write begins. Writes in flight continue to their end, and the
//	    blocks remain lent until then.
//	  - Each registration ends once and is answered once, even if the registration is parked when the request is
//	    aborted, when the time is over, or when nothing was finished. A replay record of the answer ensures that an
//	    answered registration never starts again (M2).
//	  - The number of registrations is limited by the tables, and no consumer has more of them than remain free for
//	    further consumers.
package register
