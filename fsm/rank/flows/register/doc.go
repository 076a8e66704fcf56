// Package register is registration-driven push: a Consumer names blocks that it wants written, a Producer names blocks
// that it has finished, and whichever comes last starts the write. Blocks are the engine's own on both sides: it says
// by number which it lends us (memory.Pool.Claim), and which page each is of follows from what both ends said of their
// caches in their hellos (package geometry). It is two flows over rooms that others have too.
//
// # The consumer
//
// A Register becomes one reception and, for each rank of the producer's that has a part of the blocks, one part. In the
// step that sends a part's registration the pages that this rank writes are granted to it, all of them under one grant;
// so each rank can touch its own pages, once. The registration is a question, and its answer comes when nothing of it
// writes any more.
//
//		linking ──► asking ──► over
//		              └──► withdrawing ──► over
//
//	  - A reception ends well only when each part did: a rank that answers twice is one rank, and none stands for
//	    another. On fenced planes a part is whole when the plane says that all its pages landed; on leased ones when
//	    its answer says so within the grant's time.
//	  - Whatever else ends it (time, an abort, a rank that failed) ends all of it: its outcome comes at once, and what is
//	    open of it is withdrawn. Its blocks go back when no write can land any more: each grant landed, or ended by an
//	    answer, or by the plane's proof (Revoked). Never by time alone.
//	  - Our own engine asks, so no producer has a share of receptions or grants. There is a grant for each part that can
//	    be; a part has one only while it has a place on its peer's lane, so a slow peer holds no more than the lane has,
//	    and those that end.
//	  - What both ends said of their caches is said again as one sum. Where the producer has another one, a hello was
//	    damaged: nothing is judged by it, they shake hands again, and it is registered anew. Where nothing fits by what
//	    its producers said, it fails, and they shake hands again if they have not lately.
//	  - Lost answers: the registration is asked again, as the same operation under the same grant, while its
//	    producer lives the same life. Another life has none of what was computed, and the part fails.
//
// # The producer
//
// A Finished becomes a batch, which lends its blocks for the time of a lease; a registration is a row from when it
// comes until it is answered.
//
//		parked ──► linking ──► writing ──► settling ──► answered
//
//	  - They match by the transfer's name, if either has one; else by the request's name, or by what
//	    that is without the digits that an engine of vLLM puts behind it, and then only if there is one candidate. Where
//	    there are more, none of them is written.
//	  - A batch is written for one request of one consumer, once to each of its ranks. It ends when each of these has its
//	    answer; by its lease, which heartbeats make longer and nothing shorter; or by the engine's word. From then on no
//	    write begins. What is under way goes on to its end, and the blocks stay ours until then.
//	  - Each registration has one end, and one answer: also one that is parked when its request is aborted, when its time
//	    is over, or when nothing came for it. What was answered is remembered, and never begins anew.
//	  - Who is asked is answered as far as tables go: of registrations no consumer has more than it leaves.
package register
