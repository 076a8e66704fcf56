package p2p

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/directory/registrar"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory/transfer"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// Peer is the handshake address of a node that may have chunks. The handshake tells where that node accepts lookups.
type Peer struct {
	Host     string
	InitPort uint16
}

// Bring fetches those chunks of Keys that a peer has and that are missing here, as far as they form a prefix. If From
// is empty, directories are asked which peers have the chunks, and these peers are asked in order. Hits of the
// outcome is the length of the prefix that is readable here at that time, whatever the code; each chunk of the prefix
// is kept for Request as if a peer had pushed the chunk for it. The code is NotFound if the peer has nothing, or if
// chunks are missing after the fetched ones.
type Bring struct {
	From    Peer
	Request []byte
	Keys    [][]byte
	Timeout effects.Duration // 0: the configured default
	Mode    Mode
	Trace   effects.TraceContext // the span of the get, of which peers are told
}

// Mode is the way in which chunks are transferred.
type Mode uint8

// The modes of a Bring.
const (
	// Pull: this node reads the chunks when the peer has replied which ones are present.
	Pull Mode = iota
	// Push: the peer writes the chunks into pages that the request grants.
	Push
	// Delayed: the chunks stay at the peer until a fetch reads them.
	Delayed
)

// String returns the name of the mode.
func (m Mode) String() string {
	switch m {
	case Pull:
		return "pull"
	case Push:
		return "push"
	case Delayed:
		return "delayed"
	}
	return flow.FormatCount(int(m))
}

// IsCommand marks a command body.
func (*Bring) IsCommand() {}

// A getRow is a Bring from one peer. The outcome of a get and its end are separate events: after the outcome was
// delivered, the get remains until nothing stores into its pages, no late reply can name a loan, and the peer was
// told that the loan is finished with.
type getRow struct {
	trace  effects.TraceContext `snap:"skip"`
	ticket effects.Ticket
	// search is the search that began the get; zero: an engine began it.
	search      table.Handle
	delivered   bool
	lookupID    []byte   // the name of the lookup
	keys        []byte   // all keys
	keyEnds     []uint32 // keyEnds[i] is the end of key i in keys
	requestHash uint64   // hash of the request id
	timeout     effects.Duration
	deadline    effects.Time
	timer       kernel.TimerID `snap:"set"` // fires at deadline
	// presentCount is the number of first chunks that were readable when the get began, and are not requested.
	presentCount uint32

	peer         table.Handle  // the peer in the link room
	peerAddr     link.PeerAddr // address of the peer
	phase        getPhase
	operation    uint64
	attempt      uint32 // number of requests sent
	doneAttempts uint32 // number of done messages sent
	// linkAttempt is the link's attempt number when the get began to wait for the link.
	linkAttempt uint64
	conn        effects.Conn // connection of the request in flight
	// replyTimer fires when the reply is overdue. If the outcome was delivered, it fires when the late reply is not
	// awaited any longer.
	replyTimer kernel.TimerID `snap:"set"`

	// peerID is the incarnation of the peer that was asked. The reply holds for that incarnation only (M2).
	peerID effects.Incarnation
	selfID effects.Incarnation // the incarnation of this node for that peer
	// sentAt is the time at which the latest attempt was sent. The right to read counts from here, because this
	// precedes the loan (M4).
	sentAt effects.Time
	// firstSentAt is the time at which the first attempt was sent, which is the earliest possible begin of the loan.
	firstSentAt effects.Time `snap:"skip"`
	readGrant   uint64       // grant of the loan; zero: none
	// readUntil is the end of the right to read, less the guard. Invariant: the result of a read that ends later on a
	// leased plane is not believed (M4).
	readUntil effects.Time
	// writeGrant is the grant of this node's own pages, which the read fills or the owner writes (M1).
	writeGrant effects.GrantID
	lentChunks uint32 // number of chunks that were lent
	// shareUsedUp says that the owner has more of the chunks but lends no more at a time.
	shareUsedUp bool

	mode      Mode
	grantedAt effects.Time // Push: when the pages were granted
	// Push: for each requested chunk, the index of its page in the grant.
	pageIndexes []uint32

	keptLoan table.Handle // Delayed: the row in the room of deferred offers

	transfer transfer.Transfer
	// code and why are the failure, if there is one.
	code effects.Code
	why  effects.Why
}

// A getPhase is the state of a get.
type getPhase uint8

const (
	getLinking getPhase = iota // waits for the link, or for the lookup lane
	// The request is in flight. If the outcome was delivered already, a late reply may name a loan, which is then given
	// back.
	getRequesting
	getReading // the read is in flight
	// The read has ended, but something may still store into the pages.
	getSettling
	// The get waits for the lookup lane to send the done message.
	getDoneQueued
	getDoneSent // the done message is in flight
	// The outcome was delivered. The loan is kept until a fetch has read the chunks, or the loan is over.
	getLoanKept
	// Push: the peer has written the chunks, and the pages are compared with the checksums in its reply.
	getVerifying
	getPhaseCount
)

func (r *getRow) keyCount() int { return len(r.keyEnds) }

func (r *getRow) keyAt(i int) []byte {
	from := uint32(0)
	if i > 0 {
		from = r.keyEnds[i-1]
	}
	return r.keys[from:r.keyEnds[i]]
}

// A Requester fetches chunks from peers: it sends requests, reads the lent chunks in one transfer into pages that
// become entries of the store, and sends done messages.
type Requester struct {
	cfg        RequesterConfig `snap:"share"`
	gets       table.Slab[getRow]
	peerQueues []peerQueue // by the slot of the outbound peer
	Searches   Searches    // Brings without a named peer
	// breakers is the circuit breaker for peers that did not reply in time. A stopped process keeps its connections, so
	// nothing else shows that it is stopped. Without the breaker, each Bring would wait LookupTimeout for each of these
	// peers, without an end.
	breakers      link.Breakers
	lastOperation uint64 // of the latest get

	request     protocol.AscendBatchedLookupAndGetMsg     `snap:"scratch"`
	doneMessage protocol.AscendBatchedLookupAndGetDoneMsg `snap:"scratch"`
	reply       protocol.AscendBatchedLookupAndGetRetMsg  `snap:"scratch"`
	errorReply  protocol.P2PErrorMsg                      `snap:"scratch"`
	pairs       []effects.Pair                            `snap:"scratch"`
	keys        [][]byte                                  `snap:"scratch"`
}

// A peerQueue is the queue for the lookup lane of a peer, oldest get first.
type peerQueue struct {
	requests table.List // gets with a request to send
	// doneMessages are gets with a done message to send. They are sent first, because they free memory at the peer.
	doneMessages table.List
	keptLoans    table.List // gets with a kept loan
}

// RequesterConfig configures a Requester, in addition to the configuration of all flows.
type RequesterConfig struct {
	Settings
	ReceiverID   string // name of this node in lookups
	RequestIDMax uint32
	// LeadMin is the minimum remaining time of a loan that is worth keeping.
	LeadMin effects.Duration
	// Directory configures the directories that are asked for Brings without a named peer.
	Directory registrar.Config
	Seed      uint64 // a secret
}

// backoffFactorMax limits the backoff of a peer that does not reply, in multiples of LookupTimeout. The first backoff
// lasts LookupTimeout, and each further one twice as long as the one before.
const backoffFactorMax = 16

// Recycle returns a Requester without any get, for up to peersMax peers, and reuses the memory of f. The old f must
// not be used any more.
func (f *Requester) Recycle(cfg RequesterConfig, peersMax uint32) Requester {
	frozen := f.breakers.Recycle(cfg.LookupTimeout, int(peersMax), cfg.Seed)
	return Requester{
		breakers: frozen.WithDoubling(backoffFactorMax * cfg.LookupTimeout),
		cfg:      cfg, gets: f.gets.Recycle(int(cfg.BringsMax)), peerQueues: table.RecycleSlice(f.peerQueues, int(peersMax)),
		Searches: f.Searches.recycle(cfg.Directory, cfg.BringsMax),
		request:  f.request, doneMessage: f.doneMessage, reply: f.reply, pairs: f.pairs, keys: f.keys,
	}
}

// Kinds of completions and deadlines.
const (
	// A landing of this flow: its Refs have no kind.
	kindLanding  uint8 = iota
	kindRequest        // a request for chunks
	kindDone           // a done message
	kindTransfer       // a read
	kindVerify         // a comparison of pages with their checksums
	timerGet           // the deadline of a get
	timerReply         // the deadline of a reply
	// A search: its lookup at directories, its deadline, its ticket.
	kindSearch
)

func getRef(kind uint8, h table.Handle) kernel.Ref {
	return kernel.Ref{Owner: kernel.OwnerP2PRequester, Kind: kind, Subject: h}
}

func (f *Requester) queueOf(r *getRow) *peerQueue { return &f.peerQueues[r.peer.Slot()] }

// Len returns the number of gets.
func (f *Requester) Len() int { return f.gets.Len() }

// CountUnfinished returns the number of rows that a drain waits for.
func (f *Requester) CountUnfinished(*flow.Env) int { return f.gets.Len() + f.Searches.Len() }

// VisitTables reports the sizes of the tables.
func (f *Requester) VisitTables(visit table.VisitFunc) {
	visit("chunks brought", f.gets.Len(), table.Empty)
	visit("chunks sought", f.Searches.Len(), table.Empty)
	visit("frozen peers", f.breakers.Len(), table.Bounded)
	f.Searches.lookups.VisitTables(visit)
}

// RowState returns the state of the get of a Ref. A Ref of something else is idle.
func (f *Requester) RowState(_ *flow.Rooms, ref kernel.Ref) uint16 {
	if ref.Kind == kindSearch {
		return uint16(getLinking) + 1
	}
	r := f.gets.Get(ref.Subject)
	switch {
	case r == nil || ref.Kind == kindLanding:
		return 0
	case r.phase == getRequesting && r.delivered:
		return uint16(getPhaseCount) + 1
	}
	return uint16(r.phase) + 1
}

// RequesterStateNames returns the names of the states.
func RequesterStateNames() []string {
	return []string{
		"get idle", "get linking", "get requesting", "get reading", "get settling", "get done queued", "get done sent", "get loan kept",
		"get verifying", "delivered get requesting",
	}
}

var _ flow.Flow = (*Requester)(nil)
