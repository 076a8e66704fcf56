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

// Peer is where somebody listens who may have chunks: its handshakes. Where it takes lookups it says there.
type Peer struct {
	Host     string
	InitPort uint16
}

// Bring has the chunks of Keys brought here that a peer has, as far as they are not here and as they form a prefix.
// Where From says nothing, directories are asked who has them, and those that they name are asked in their order. Hits
// says how long the prefix is that is readable here at its outcome, whatever that is; each of its chunks is kept for
// Request as if it had been pushed for it. A peer that has nothing is NotFound, and so are chunks that are missing
// behind those that came.
type Bring struct {
	From     Peer
	Request  []byte
	Keys     [][]byte
	Patience effects.Duration // 0: the configured default
	Mode     Mode
}

// Mode is how chunks come.
type Mode uint8

// Modes of a Bring.
const (
	Pull    Mode = iota // they are read as soon as the peer has said which it has
	Push                // the peer writes them, into pages that it is given with the question
	Delayed             // they stay there until they are fetched
)

// String is its name.
func (m Mode) String() string {
	switch m {
	case Pull:
		return "pull"
	case Push:
		return "push"
	case Delayed:
		return "delayed"
	}
	return flow.Number(int(m))
}

// IsCommand marks a command body.
func (*Bring) IsCommand() {}

// A get is one Bring. Its outcome and its end are two things: after Deliver it stays until nothing stores into the
// pages that it took, no late answer can bring a loan, and its peer was told that the loan is finished with.
type get struct {
	ticket    effects.Ticket
	by        table.Handle // the seek that began it; zero: an engine
	delivered bool
	lookup    []byte // its name
	keys      []byte
	ends      []uint32 // ends[i]: where key i ends in keys
	request   uint64   // hash
	patience  effects.Duration
	deadline  effects.Time
	timer     kernel.TimerID `snap:"set"` // the deadline
	here      uint32         // so many from the first were here when it began, and are not asked for

	peer      table.Handle // of the link room
	where     link.Where   // of the peer
	phase     phase
	operation uint64
	attempt   uint32         // how often it was asked
	told      uint32         // how often the last word was said
	reached   uint64         // the link's attempt when it began to wait for it
	conn      effects.Conn   // on which its question is
	answer    kernel.TimerID `snap:"set"` // when the answer is overdue; of a ghost, when it is waited for no more

	who   effects.Incarnation // whom it asked: what is said of it holds for no other life
	us    effects.Incarnation // who we are to it
	asked effects.Time        // when that attempt was sent which is under way, or was answered
	since effects.Time        `snap:"skip"` // when it asked first: the loan may be as old
	grant uint64              // the loan; zero: none
	until effects.Time        // when our right to read ends, less the guard: a read that ends later is not believed
	into  effects.GrantID     // our own grant, of the pages that are read into, or that its owner writes into
	hits  uint32              // chunks that were lent
	cut   bool                // the owner has more of them, and lends no more at a time

	mode    Mode
	granted effects.Time // Push: since when pages are
	places  []uint32     // Push: of each chunk, among these

	kept table.Handle // Delayed: in the room of what is kept

	read transfer.Transfer
	code effects.Code // how it ends, if it has failed
	why  effects.Why
}

// phase is where a get stands.
type phase uint8

const (
	linking  phase = iota // waits for the link, or for its turn
	asking                // question sent; delivered already it is a ghost, whose late answer brings a loan to give back
	reading               // transfer in flight
	settling              // it ended, but something may still store into the pages
	leaving               // waits for its turn to say that the loan is finished with
	telling               // said it
	keeping               // delivered; what was lent is kept until it is fetched, or over
	phases
)

func (r *get) size() int { return len(r.ends) }

func (r *get) key(i int) []byte {
	from := uint32(0)
	if i > 0 {
		from = r.ends[i-1]
	}
	return r.keys[from:r.ends[i]]
}

// A Requester is who wants chunks of peers: it asks, reads what it is told in one transfer into pages that become the
// store's, and says when it has read.
type Requester struct {
	cfg   RequesterConfig `snap:"share"`
	gets  table.Slab[get]
	lines []line // by the slot of the outbound peer
	Seeks Seeks  // Brings that name nobody
	// Frozen are peers that did not answer a question in its time: a process that is stopped keeps its connections, so
	// nothing else tells. Otherwise each question would wait that long for each of them, for ever.
	frozen    link.Breakers
	operation uint64 // of the last get

	ask   protocol.AscendBatchedLookupAndGetMsg     `snap:"scratch"`
	done  protocol.AscendBatchedLookupAndGetDoneMsg `snap:"scratch"`
	reply protocol.AscendBatchedLookupAndGetRetMsg  `snap:"scratch"`
	fault protocol.P2PErrorMsg                      `snap:"scratch"`
	pairs []effects.Pair                            `snap:"scratch"`
	keys  [][]byte                                  `snap:"scratch"`
}

// A line is the gets that wait for the lookup lane of one peer, oldest first.
type line struct {
	asks  table.List // that have a question
	words table.List // that have a last word: they go first, for they set memory free
	kept  table.List // that keep what was lent
}

// RequesterConfig is what a Requester goes by, beside what all flows do.
type RequesterConfig struct {
	ReceiverID   string           // our name in lookups
	BringsMax    uint32           // in progress at a time, ghosts included
	Timeout      effects.Duration // of a Bring that says none
	LookupTime   effects.Duration // of one question
	RequestIDMax uint32
	Keeps        bool             // Brings may be Delayed
	LeadMin      effects.Duration // for which a loan must still stand to be kept
	Directory    registrar.Config // whom Brings are for that name nobody
	Seed         uint64           // a secret
}

// frozenMost is how many times as long as a question may take a peer is left alone that answers none: the first time it
// is as long as one, and then each time twice as long.
const frozenMost = 16

// Emptied returns a Requester that wants nothing of so many peers, in the memory of f, which is not used any more.
func (f *Requester) Emptied(cfg RequesterConfig, peersMax uint32) Requester {
	frozen := f.frozen.Emptied(cfg.LookupTime, int(peersMax), cfg.Seed)
	return Requester{
		frozen: frozen.Growing(frozenMost * cfg.LookupTime),
		cfg:    cfg, gets: f.gets.Emptied(int(cfg.BringsMax)), lines: table.Zeroed(f.lines, int(peersMax)),
		Seeks: f.Seeks.emptied(cfg.Directory, cfg.BringsMax),
		ask:   f.ask, done: f.done, reply: f.reply, pairs: f.pairs, keys: f.keys,
	}
}

// Kinds of completions and deadlines.
const (
	kindLanding  uint8 = iota // a landing of its own: its Refs have no kind
	kindAsk                   // a question about chunks
	kindDone                  // a word that a loan is finished with
	kindTransfer              // a read
	timerGet                  // when a get must have its outcome
	timerAnswer               // when an answer is overdue
	kindSeek                  // of a seek: its question to directories, its deadline, its ticket
)

func getRef(kind uint8, h table.Handle) kernel.Ref {
	return kernel.Ref{Owner: kernel.OwnerP2PRequester, Kind: kind, Subject: h}
}

func (f *Requester) line(r *get) *line { return &f.lines[r.peer.Slot()] }

// Len is the number of gets that are not over.
func (f *Requester) Len() int { return f.gets.Len() }

// Left counts what a drain waits for.
func (f *Requester) Left(*flow.Env) int { return f.gets.Len() + f.Seeks.Len() }

// Tables shows what is in the tables of who wants chunks.
func (f *Requester) Tables(visit table.Visit) {
	visit("chunks brought", f.gets.Len(), table.Empty)
	visit("chunks sought", f.Seeks.Len(), table.Empty)
	visit("frozen peers", f.frozen.Len(), table.Bounded)
	f.Seeks.lookups.Tables(visit)
}

// State is where the get of a Ref stands; what is about none of them is idle.
func (f *Requester) State(_ *flow.Rooms, ref kernel.Ref) uint16 {
	if ref.Kind == kindSeek {
		return uint16(linking) + 1
	}
	r := f.gets.Get(ref.Subject)
	switch {
	case r == nil || ref.Kind == kindLanding:
		return 0
	case r.phase == asking && r.delivered:
		return uint16(phases) + 1
	}
	return uint16(r.phase) + 1
}

// RequesterStateNames are their names.
func RequesterStateNames() []string {
	return []string{
		"get idle", "get linking", "get asking", "get reading", "get settling", "get leaving", "get telling", "get keeping",
		"get ghost",
	}
}

var _ flow.Flow = (*Requester)(nil)
