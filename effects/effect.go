package effects

// An Effect is something a driver must carry out. Each comment says what the
// driver must do, which event answers it, what holds before, and what the driver
// may never do.
//
//sumtype:decl
type Effect interface{ isEffect() }

// Open makes a client connection. Answer: one Opened. The driver may answer OK
// before the peer is there; it never resolves or connects synchronously. Window is the
// most Sends that may be outstanding on the Conn: 0 and 1 are lockstep, and only Matched
// channels take more.
type Open struct {
	Corr    Corr
	Channel Channel
	Window  uint16
	Addr    Addr
}

// Close ends a Conn that Opened gave. The outstanding Sends on it are completed in their
// order as Unanswered{Closed}, but for those whose answer is in the mailbox already: then
// that is their completion. Nothing else of that Conn is posted from then on, so an older reply can
// never be taken for a newer one.
type Close struct{ Conn Conn }

// Send queues one request on a Conn. Answer: one Replied or Unanswered. Before: fewer
// Sends are outstanding on that Conn than its Window. Their answers may come in any
// order, each under its own Corr; one that is lost keeps its place until Close. The
// driver sets no timeout: the machine ends it with Close. A driver never resends.
type Send struct {
	Corr Corr
	Conn Conn
	Body []byte
	// Carries are pages of ours whose valid bytes the driver writes, one page behind the other, over the end of Body, as
	// they are when it carries the effect out: Body has so many bytes for them. Before: the machine holds the pages in
	// this step, and nothing stores there. Where the driver cannot read pages by itself there are none.
	Carries []Page
}

// Post hands one one-way message to the transport. Answer: one SendDone. Never
// silently dropped: a full queue is Refused.
type Post struct {
	Corr Corr
	Conn Conn
	Body []byte
}

// Reply answers one Request, at most once. No answer. If the asker is gone the
// bytes are dropped and counted.
type Reply struct {
	Request Request
	Body    []byte
}

// Import connects the data plane to a peer: Plane is one of the names that both
// ends have, Blob what the peer's plane of that name offered to us alone, Peer the peer's
// incarnation as we know it, Us ours as it knows us. Answer: one Imported. The driver proves to the
// peer's plane that it has the Blob and is Us, and has it prove that it is Peer.
type Import struct {
	Corr  Corr
	Peer  Incarnation
	Us    Incarnation
	Plane string
	Blob  []byte
}

// Drop ends a Link; its transfers complete as PeerLost. Answer: one Dropped. A LinkLost
// that is in the mailbox already comes before it.
type Drop struct{ Link Link }

// Publish makes new lives of local pages known before their first store: the
// generation becomes visible to every reader, then a full barrier. Synchronous.
type Publish struct{ Pages []Page }

// Grant lets Peer store up to Length bytes into each page (which must carry that
// generation; publishing it is part of Grant), or with Read load as many from it, as
// often as it likes. Synchronous: in force before the next effect. A zero Peer is a
// bearer grant: on fenced planes it opens nothing, because nobody there can present it.
// The driver lets no other peer, no other generation, no byte beyond Length and no
// access after Revoke's completion. A page has one grant to store, or any number of
// grants to load: then it holds what its owner stored before, and nobody stores into it.
type Grant struct {
	ID    GrantID
	Peer  Incarnation
	Read  bool
	Pages []Page
}

// Revoke takes a grant back. Answer: one Revoked once nothing can touch the pages
// that had not landed, or deliver what it loads from them any more. Never synchronous. On
// fenced planes it always ends soon; on leased ones when the mapping, queue pair or
// communicator is proven gone. A grant to load ends by Revoke alone on fenced planes.
type Revoke struct{ Grant GrantID }

// Transfer writes Pairs to the peer behind Link under Grant, as one batch; with Read it
// loads the peer's pages into ours. Answer: one TransferDone, and one Settled if that was
// not settled. Before: local pages are held by the machine until settled; those to be loaded
// into were published. The driver re-reads its clock before each submission to the device or
// stream and completes as Expired past NotAfter; it refuses (Stale) if the link's
// incarnation is not Peer. The peer gave Grant no earlier than Since, by our clock; zero: nobody knows. Gather is
// that of a push only.
type Transfer struct {
	Corr     Corr
	Link     Link
	Peer     Incarnation
	Grant    GrantID
	Read     bool
	Pairs    []Pair
	Gather   Gather
	Since    Time
	NotAfter Time
}

// Copy copies Length bytes of each From to its To: pages of two pools of this node, or of one. Answer: one
// CopyDone, and one Settled if that was not settled. Before: the machine holds both pages until
// settled; To was published, and nothing else loads or stores there. The copies of several effects
// may overlap, and end in any order.
type Copy struct {
	Corr  Corr
	Pairs []CopyPair
}

// Store copies Bytes, which are of the body of the event that was taken in this step, to the start of a page of ours,
// before the driver carries out the next effect. No answer: it cannot fail. Before: Page was published, and nobody else
// loads or stores there.
type Store struct {
	Page  Page
	Bytes []byte
}

// Cancel hastens the end of a Transfer or Copy. No answer of its own; unknown ones are ignored.
type Cancel struct{ Corr Corr }

// Confirm answers one Landed. The initiator's TransferDone is not sent before it.
// OK: the machine took the pages that landed. Otherwise the push failed with Code.
type Confirm struct {
	Landing Landing
	Code    Code
}

// Scatter hands Pages, whole chunks in order, to the engine's device code: Pages[i] is item
// First+i of the command Ticket. Answer: one Scattered. Before: the machine holds the pages
// until then, nothing writes to them, and no other Scatter of that command is outstanding.
// The driver does not touch them after it; of what the engine did with them nobody else asks.
type Scatter struct {
	Corr   Corr
	Ticket Ticket
	First  uint32
	Pages  []Page
}

// Deliver is the one outcome of a command. Pages is the memory it gives or gives
// back, in command order; Held says that (only then) it is not to be touched until
// Return. The engine owns what it was given until its own Release.
type Deliver struct {
	Ticket  Ticket
	Code    Code
	Held    bool
	Pages   []Page
	Sent    uint32 // Put: chunks written by this command
	Skipped uint32 // Put: chunks that the peer already had
	Hits    uint32 // Get, Contains: length of the usable prefix, in chunks
	Left    uint32 // Drain: things still out
	Why     *Why   // where Code is not OK: the rest of it; nil where there is no more to say
	// Fetch that failed: it had begun, so what was offered for its request under its keys is given up. One that only
	// waited takes nothing with it.
	Begun bool
}

// Return gives back the memory of a command whose Deliver said Held. Once only.
type Return struct{ Ticket Ticket }

// Observe is a typed fact for metrics, logs and oracles. A driver may drop it.
type Observe struct {
	Fact  Fact
	Code  Code
	Count uint32
	ID    uint64 // what Fact says
	Peer  Incarnation
	Why   *Why // of what failed; nil where there is no more to say
}

func (*Open) isEffect()     {}
func (*Close) isEffect()    {}
func (*Send) isEffect()     {}
func (*Post) isEffect()     {}
func (*Reply) isEffect()    {}
func (*Import) isEffect()   {}
func (*Drop) isEffect()     {}
func (*Publish) isEffect()  {}
func (*Grant) isEffect()    {}
func (*Revoke) isEffect()   {}
func (*Transfer) isEffect() {}
func (*Copy) isEffect()     {}
func (*Store) isEffect()    {}
func (*Cancel) isEffect()   {}
func (*Confirm) isEffect()  {}
func (*Scatter) isEffect()  {}
func (*Deliver) isEffect()  {}
func (*Return) isEffect()   {}
func (*Observe) isEffect()  {}
