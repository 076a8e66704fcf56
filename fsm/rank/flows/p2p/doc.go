// Package p2p shares ready chunks between peers. An Owner tells a peer which prefix of some chunks is in its store, and
// lends that prefix to the peer. A Requester asks a peer, and reads the chunks into pages that become entries of its
// own store. Both are flows over rooms (packages with tables) that other flows use as well: lookups, pins and leases
// belong to fsm/rank/peers/loan, links and the connection to a peer to fsm/rank/peers/link, pages that are being filled
// to fsm/rank/memory/landing, and the read to fsm/rank/memory/transfer.
//
// Example of a pull:
//
//	requester: Bring k1 k2 k3   sends AscendBatchedLookupAndGetMsg (operation 7)
//	owner                       pins k1 and k2, lends them, replies: 2 hits, grant 9, lease 60 s
//	requester                   takes two pages, reads k1 and k2 in one transfer
//	requester                   outcome NotFound, because k3 is missing, with 2 hits; sends a done message for grant 9
//	owner                       ends the loan, unpins k1 and k2
//
// # The owner
//
// The owner listens on two channels. On the Lookup channel a message asks which chunks are present (Get), or where done
// messages are accepted (QueryDonePort), or says that a loan is not read any more (Done). The PeerDone channel accepts
// Done only. Each message has exactly one reply, in the step in which the message arrives, except that the reply to a
// Get waits until this node has copied or written the chunks if the Get requires that. Any other message is answered
// with the error code of LMCache-Ascend for it.
//
//		Get ──► loan ──► ended by Done, by time, or with the reader's link
//
//	  - With an arena (ArenaPages), the chunks of a Get are first copied to the arena, as long a prefix as the peer's
//	    share of the arena permits, and the copies are lent. The reply is sent when all copies have settled, and only
//	    until then the store keeps the originals. A copy that fails ends the prefix. Such requests count as requests in
//	    service together with those that are answered by a write, and no peer has more of them than it leaves for the
//	    remaining peers (table.Share). Example: of 12 requests in service the first peer may have 6, and then the second
//	    peer 3.
//	  - A Get has an operation number that is unique within the requester's incarnation, and each attempt repeats the
//	    number. A repeated operation is answered with the same pages under the same grant and the remaining time. Another
//	    incarnation, or another peer with a lookup of the same name, receives a separate loan.
//	  - A peer that has not completed a handshake, or lost its link, is told to introduce itself. So is a peer without
//	    kvferry's extensions, because the data planes admit only known peers.
//	  - A Done ends the loan of the grant that it names, if the loan belongs to the sender. A Done without a grant ends
//	    nothing, because it may mean any of several loans.
//	  - The reader counts its right to read from the time of its request, which precedes the loan (M4). The owner ends
//	    the loan by the owner's clock.
//	  - Only whole pages are lent, because no message of this flow states the length of a chunk.
//	  - Loans, and pages in loans, are limited by the share rule of table.Share: a peer gets another place only while
//	    the peer has fewer places than are free, so one peer cannot take all of them.
//	  - If the request grants pages of the requester (push), the owner pins the chunks and writes them into these
//	    pages, over a link that is made for the purpose if necessary. The only reply is sent when nothing writes any
//	    more. The write ends before the requester's grant does, by the anchor that the stamps provide. A request beyond
//	    the peer's share of the requests in service (the same rule) is a miss at once. A request that was answered
//	    never starts again when the message is repeated.
//
// # The requester
//
// The command Bring names the peer to ask, or the requester asks directories (package registrar) which peers have the
// chunks. The directory's reply may be wrong, which costs a cache miss and nothing else. The named peers are asked in
// their order, each by a get of its own, if the peer is said to have more than is present here. Whatever the outcome
// of a get, the next peer is asked, except when the reason lies at this node: time, memory, or an abort.
//
//		linking ──► requesting ──► reading ──► doneQueued ──► doneSent ──► removed
//		                │            └──► settling ──►┘
//		                ├──► loanKept ──► doneQueued
//		                └──► requesting with delivered: the outcome was delivered; the loan of a late reply is given back
//
//	  - All gets from a peer share a lookup lane. If the lane is lost, each request on it is sent again on the next
//	    lane, as the same operation, up to a number of attempts. If the peer does not reply in time, the get is a miss
//	    and is not repeated.
//	  - Pages are taken when the reply arrives, which says how many are needed: all or none, from the share of the node's
//	    own engine, and not before allocation requests that wait for pages. The pages are under a grant of this node
//	    until the read has settled, however the read ended. Chunks that landed completely are fills of the store, of
//	    which the first one counts.
//	  - The read ends before the loan does, by this node's clock from before the request was sent. On leased planes, a
//	    read that completed later is not believed.
//	  - In push mode, pages for all requested chunks are granted in the step that sends the request, all or none, under
//	    a single grant. A repeated request names the same grant while the grant is in force. Chunks that land belong to
//	    the store. The remaining pages become free with the reply. Without a reply they become free, on fenced planes,
//	    by a revocation when the get has its outcome; on leased planes, by a late reply or by the proof that follows
//	    the end of the grant.
//	  - In delayed mode, the loan is kept like a deferred offer (package deferred), and no page is taken. The outcome
//	    says how many chunks are present or kept for the request, and a fetch reads them. The loan is kept until the
//	    fetch has ended, as long as the loan is in force, the request is wanted, and the link over which the loan was
//	    requested is up.
//	  - Each loan named by a reply is given back when nothing of this node reads under the loan, whatever the outcome
//	    of the read.
//
// Protection of memory: a pin keeps a chunk in the owner's store, and a read grant keeps the chunk's page from being
// written. Both last as long as the lease, even if the chunk is given up meanwhile. Lending neither claims nor
// consumes a chunk. At the reader, a page is readable when it is complete, and the claim of the reader's own engine
// keeps it.
package p2p
