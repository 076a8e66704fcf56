// Package p2p shares what is ready between peers: an Owner says which prefix of some chunks it has, and lends it to who
// asks; a Requester asks, and reads it into pages that become its own store's. It is two flows over rooms that others
// have too: lookups, pins and leases are fsm/rank/peers/loan's, links and the connection to a peer
// fsm/rank/peers/link's, pages that are read into and what becomes readable of them fsm/rank/memory/landing's, the read
// fsm/rank/memory/transfer's.
//
// # The owner
//
// It listens on two channels. Lookup is matched: a peer asks which chunks are here (Get), where ends are taken
// (QueryDonePort), or says that it reads no more (Done). PeerDone takes Done alone. Each message has one answer in the
// step in which it comes; what is none of these is answered with the code that LMCache-Ascend has for it.
//
//		Get ──► loan ──► by Done, by time, or with the reader's link: over
//
//	  - With an arena (ArenaPages) what a Get asks for is copied there first, as long a prefix as its asker may have of
//	    it, and the copies are lent. It has its one answer when all copies have settled, and until then, and no longer,
//	    the store keeps what they are of. A copy that fails ends the prefix. Questions whose chunks are copied are in
//	    service as those are that are answered by a write: of all these no peer has more than it leaves.
//	  - A Get has an operation of its asker's life, which each attempt repeats: it is answered with the same pages under
//	    the same grant, and what is left of their time. Another life, or another peer with a lookup of the same name, has
//	    another loan.
//	  - Who has not shaken hands, or whose link is lost, is told to introduce itself. So is who speaks without our
//	    extensions: our planes let nobody in whom they do not know.
//	  - A Done ends the loan whose grant it names, if it is the speaker's own. One that names none ends nothing: it may
//	    mean any of several.
//	  - The reader's right counts from when it asked, which precedes the loan (M4). The end here is by the owner's clock.
//	  - Only whole pages are lent: no message of this flow says how long a chunk is.
//	  - Of loans, and of the pages under them, no peer has more than it leaves: the others' lookups never fail for it.
//	  - Where the question grants pages of the asker's (push), what there is is pinned and written into them, over a link
//	    to them that is made then. The one answer goes out when nothing writes any more. The write ends before the
//	    asker's grant does, by the anchor that its stamps make. Of those in progress, too, no peer has more than it
//	    leaves; whoever asks beyond that has a miss at once. What was answered never begins anew, if the question comes
//	    again.
//
// # The requester
//
// It is told of whom to ask by the command, Bring, or asks directories (package registrar): who has what is for others
// to know, and may be wrong, which costs a miss and nothing else. Those that directories name are asked in their order,
// each by a get of its own, if more is said of them than is here; whatever became of that, the next one is asked, but
// for what ends at our side: time, memory, an abort.
//
//		linking ──► asking ──► reading ──► leaving ──► telling ──► gone
//		              │           └──► settling ──►┘
//		              ├──► keeping ──► leaving
//		              └──► ghost: it has its outcome, and a late answer's loan is given back
//
//	  - All gets of a peer share one lookup lane. Where that is lost, each question on it is asked again on the next one,
//	    as the same operation, some times at most. Where nobody answers in time it is a miss, not asked again.
//	  - Pages are taken when the answer is here, which says how many: all or none, from our engine's share, and not
//	    before who waits for some. They are under a grant of our own until the read has settled, however it ended; what
//	    landed whole is a fill of the store's, of which the first one counts.
//	  - The read ends before the loan does, by our clock from before we asked; on planes that nobody watches one that
//	    ended later is not believed.
//	  - In push pages for all that it asks for are granted in the step that asks, all or none: under one grant, which a
//	    question that is asked again names again while it stands. What lands is the store's. The rest is free by the
//	    answer; without one, on fenced planes by a revocation as the get has its outcome, on leased ones by a late answer
//	    or by the proof that follows the grant's time.
//	  - Delayed, what was lent is kept as an offer is (package deferred), and no page is taken: the outcome says how much
//	    is here or kept for the request, and a fetch reads it. It is kept until that has ended, for as long as the loan
//	    stands, its request is wanted and the link over which it was asked for is up.
//	  - Each loan that an answer named is given back, once nothing of ours reads under it, whatever became of the read.
//
// Who may touch what: a pin keeps a chunk in the store, a read grant keeps its page from writers, and both last as long
// as the lease, whoever gives the chunk up meanwhile. Nothing is claimed or consumed there. At the reader a page is
// readable when it is whole, and its own engine's claim keeps it.
package p2p
