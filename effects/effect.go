package effects

// An Effect is an action that a driver must carry out. The comment of each effect says what the driver must do, which
// event completes the effect, what holds before it, and what the driver must never do.
//
//sumtype:decl
type Effect interface{ effectKind() Kind }

// A Kind is a kind of effect. The zero Kind is the kind of no effect.
type Kind uint8

// The kinds, in the order in which they were added.
const (
	KindOpen Kind = iota + 1
	KindClose
	KindSend
	KindPost
	KindReply
	KindImport
	KindDrop
	KindPublish
	KindGrant
	KindRevoke
	KindTransfer
	KindCancel
	KindConfirm
	KindDeliver
	KindReturn
	KindObserve
	KindScatter
	KindCopy
	KindStore
	KindVerify
)

// KindCount is the number of kinds, with the zero Kind.
const KindCount = int(KindVerify) + 1

//kvferry:table
var kindNames = [KindCount]string{"none", "Open", "Close", "Send", "Post", "Reply", "Import", "Drop", "Publish",
	"Grant", "Revoke", "Transfer", "Cancel", "Confirm", "Deliver", "Return", "Observe", "Scatter", "Copy", "Store", "Verify"}

// String returns the name of the effect's type, or "none" for the zero Kind.
func (k Kind) String() string { return kindNames[k] }

// KindOf returns the kind of an effect.
func KindOf(e Effect) Kind { return e.effectKind() }

// Open makes a client connection. Completion: Opened. The driver may report OK before the peer is present, and never
// resolves or connects synchronously. Window is the largest number of Sends that may be outstanding on the Conn: 0 and
// 1 mean lockstep, and only Matched channels allow more.
//
// If Principal is not zero, the driver sends nothing to a server that does not prove this identity, also when it connects
// again by itself: another process may listen at the address by then, and what is sent names chunks, or contains them.
type Open struct {
	Corr      Corr
	Channel   Channel
	Window    uint16
	Addr      Addr
	Principal Principal
}

// Close ends a Conn that Opened returned. The outstanding Sends on that Conn complete in their order as
// Unanswered{Closed}, except for a Send whose reply is in the mailbox already: that reply is then the completion.
// Afterwards the driver posts nothing more about that Conn, so an older reply can never be taken for a newer reply
// (M6).
type Close struct{ Conn Conn }

// Send queues a request on a Conn. Completion: Replied or Unanswered. Before: fewer Sends are outstanding on that Conn
// than its Window. The replies may arrive in any order, each under the Corr of its request; a lost reply keeps a place
// in the window until Close. The driver sets no timeout, because the machine ends a slow request with Close. A driver
// never resends.
type Send struct {
	Corr Corr
	Conn Conn
	Body []byte
	// Carries are local pages. The driver writes the valid bytes of the pages, page after page, over the end of Body, as
	// the pages are when the driver carries out the effect. Body has room for the bytes. Before: the machine holds the
	// pages in this step, and nothing stores into the pages. A machine carries no pages if its driver cannot read pages
	// by itself.
	Carries []Page
}

// Post hands a one-way message to the transport. Completion: SendDone. The driver never drops the message silently: a
// full queue completes as Refused.
type Post struct {
	Corr Corr
	Conn Conn
	Body []byte
}

// Reply answers a Request, at most once. There is no completion. If the requester is gone, the bytes are dropped and
// counted.
type Reply struct {
	Request Request
	Body    []byte
}

// Import connects the data plane to a peer. Plane is the name of a plane that both ends have, Blob is what the peer's
// plane of that name offered to this rank alone, Peer is the peer's incarnation as this rank knows it, and Us is this
// rank's incarnation as the peer knows it. Completion: Imported. The driver proves to the peer's plane that the driver
// has the Blob and is Us, and requires the peer's plane to prove that it is Peer (M2).
type Import struct {
	Corr  Corr
	Peer  Incarnation
	Us    Incarnation
	Plane string
	Blob  []byte
}

// Drop ends a Link; the transfers of that link complete as PeerLost. Completion: Dropped. A LinkLost that is in the
// mailbox already arrives before the Dropped.
type Drop struct{ Link Link }

// Publish makes new generations of local pages known before the first store into the pages: the generation becomes
// visible to every reader, then follows a full memory barrier. Synchronous.
type Publish struct{ Pages []Page }

// Grant lets Peer store up to Length bytes into each page, or with Read lets Peer load as many bytes from each page,
// any number of times. The page must carry the generation that Pages names; publishing that generation is part of
// Grant. Synchronous: the grant is in force before the next effect. A zero Peer is a bearer grant (M5): on fenced
// planes such a grant admits no peer, because no peer can present it.
//
// The driver allows no other peer, no other generation, no byte beyond Length and no access after the completion of
// Revoke. On a fenced plane the driver compares what a peer has stored with the Sum of the page, if there is one, before
// the driver reports the page as landed; other bytes are not reported as landed (see Landed).
//
// Invariant: a page has at most one grant to store, or any number of grants to load, never both (M1). While grants to
// load exist, the page holds what the owner stored before, and nothing stores into the page.
type Grant struct {
	ID    GrantID
	Peer  Incarnation
	Read  bool
	Pages []Page
}

// Revoke takes a grant back. Completion: Revoked, once nothing can store into a page of the grant that had not landed,
// or deliver bytes that it loads from a page of the grant, any more. Never synchronous. On fenced planes Revoke always
// completes soon; on leased planes Revoke completes when the mapping, queue pair or communicator is proven gone. On
// fenced planes a grant to load ends by Revoke alone.
type Revoke struct{ Grant GrantID }

// Transfer writes Pairs to the peer behind Link under Grant, as one batch; with Read, Transfer loads the peer's pages
// into local pages. Completion: TransferDone, and a Settled if that TransferDone was not settled. Before: the machine
// holds the local pages until the transfer is settled, and published the pages that are to be loaded into.
//
// The driver reads its clock again before each submission to the device or stream, and completes the transfer as
// Expired past NotAfter (M4). The driver refuses the transfer as Stale if the link's incarnation is not Peer (M2). The
// peer gave Grant no earlier than Since, by the local clock; zero means that the time is unknown. Only a push has a
// Gather.
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

// Copy copies Length bytes of each From to the To of the same pair: pages of two pools of this node, or of a single
// pool. Completion: CopyDone, and a Settled if that CopyDone was not settled. Before: the machine holds both pages
// until the copy is settled; To was published, and nothing else loads from or stores into To. The copies of several
// effects may overlap and may end in any order.
type Copy struct {
	Corr  Corr
	Pairs []CopyPair
}

// Store copies Bytes to the start of a local page, before the driver carries out the next effect. Bytes are part of the
// body of the event of this step. There is no completion, because Store cannot fail. Before: Page was published, and
// nothing else loads from or stores into the page.
type Store struct {
	Page  Page
	Bytes []byte
}

// Verify compares the bytes of local pages, which a peer has stored, with the Sum of each page. Completion: Verified. A
// machine asks for that where the driver did not compare the pages before it reported them: on a leased plane the
// driver sees no stores, and a write that this rank requested has no Sum when the pages are granted. Before: the writer
// has said that it stores nothing into the pages any more, and the machine keeps the pages until the completion, so
// that nothing else stores into them (M1).
type Verify struct {
	Corr  Corr
	Pages []Page
}

// Cancel hastens the end of a Transfer or Copy. Cancel has no completion; an unknown Corr is ignored.
type Cancel struct{ Corr Corr }

// Confirm answers a Landed. The initiator's TransferDone is not sent before the Confirm. OK means that the machine took
// the pages that landed; any other Code means that the push failed with that code.
type Confirm struct {
	Landing Landing
	Code    Code
}

// Scatter hands Pages, whole chunks in order, to the engine's device code: Pages[i] is item First+i of the command
// Ticket. Completion: Scattered. Before: the machine holds the pages until then, nothing writes to the pages, and no
// second Scatter of that command is outstanding. The driver does not touch the pages after the completion. What the
// engine did with the data matters to the engine alone.
type Scatter struct {
	Corr   Corr
	Ticket Ticket
	First  uint32
	Pages  []Page
}

// Deliver is the outcome of a command; each command has exactly one. Pages is the memory that the outcome gives or
// returns to the engine, in command order. Held says that this memory must not be touched until Return; only an outcome
// with Held is followed by a Return. The engine owns the memory that it was given until the engine's own Release.
type Deliver struct {
	Ticket  Ticket
	Code    Code
	Held    bool
	Pages   []Page
	Sent    uint32 // Put: chunks written by this command
	Skipped uint32 // Put: chunks that the peer already had
	Hits    uint32 // Get, Contains: length of the usable prefix, in chunks
	Left    uint32 // Drain: number of things that are still in use
	Why     *Why   // details where Code is not OK; nil where there are none
	// Begun is for a Fetch that failed: the fetch had begun, so the offers for the fetch's request and keys are given up.
	// A fetch that was still waiting leaves the offers in place.
	Begun bool
}

// Return gives back the memory of a command after a Deliver that said Held. Return is emitted once only.
type Return struct{ Ticket Ticket }

// Observe is a typed fact for metrics, logs and oracles. A driver may drop an Observe.
type Observe struct {
	Fact  Fact
	Code  Code
	Count uint32
	ID    uint64 // the meaning depends on Fact
	Peer  Incarnation
	Why   *Why // details of a failure; nil where there are none
	// Report is the time of the operation that ends with this fact; nil where it is not known.
	Report *Report
}

func (*Open) effectKind() Kind     { return KindOpen }
func (*Close) effectKind() Kind    { return KindClose }
func (*Send) effectKind() Kind     { return KindSend }
func (*Post) effectKind() Kind     { return KindPost }
func (*Reply) effectKind() Kind    { return KindReply }
func (*Import) effectKind() Kind   { return KindImport }
func (*Drop) effectKind() Kind     { return KindDrop }
func (*Publish) effectKind() Kind  { return KindPublish }
func (*Grant) effectKind() Kind    { return KindGrant }
func (*Revoke) effectKind() Kind   { return KindRevoke }
func (*Transfer) effectKind() Kind { return KindTransfer }
func (*Copy) effectKind() Kind     { return KindCopy }
func (*Store) effectKind() Kind    { return KindStore }
func (*Verify) effectKind() Kind   { return KindVerify }
func (*Cancel) effectKind() Kind   { return KindCancel }
func (*Confirm) effectKind() Kind  { return KindConfirm }
func (*Scatter) effectKind() Kind  { return KindScatter }
func (*Deliver) effectKind() Kind  { return KindDeliver }
func (*Return) effectKind() Kind   { return KindReturn }
func (*Observe) effectKind() Kind  { return KindObserve }
