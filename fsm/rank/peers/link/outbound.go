package link

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// PeerAddr is the address of a receiver: a host and two ports, compared for equality.
type PeerAddr struct {
	Host      string
	InitPort  uint16
	AllocPort uint16 // 0: the peer shares chunks, and states in the handshake where it takes lookups
}

// SharesChunks reports whether the peer shares chunks and is asked which chunks it has.
func (w PeerAddr) SharesChunks() bool { return w.AllocPort == 0 }

// State is the progress of an Outbound's handshake.
type State uint8

// States, in the order of a handshake.
const (
	Idle      State = iota // no put wants the peer
	Opening                // the init connection is being opened
	Greeting               // the hello was sent
	Importing              // the data plane is being connected
	Listing                // the peer's buffers were requested
	Ready                  // the peer can be used
	Backoff                // the last attempt or the link failed; the next attempt is scheduled
)

// Outbound is a peer that this node connects to: the sender's side of a link.
type Outbound struct {
	addr     PeerAddr
	addrHash uint64 // hash of addr
	state    State
	// Number of the attempt, across all users of the slot; completions of earlier attempts are stale.
	epoch            uint64         `snap:"past"`
	users            uint32         // number of puts that need the peer
	outstanding      uint32         // outstanding completions, including those of former attempts
	conn             Conn           // the connection to the init port, during a handshake
	row              table.Handle   // the peer's Incarnation
	failures         uint32         // failures in a row
	cause            effects.Code   // code of the last failure
	why              *effects.Why   // explanation of cause; nil if there is none
	timer            kernel.TimerID `snap:"set"`
	lanes            [Lanes]Conn
	trustedUntil     effects.Time // until when the last hello is not doubted (IsDoubtful)
	lookupAddr       effects.Addr // where a peer that shares chunks takes lookups
	changed          bool         // the peer is in changes
	absent           bool         // no process listened at the address at the last attempt
	everAnswered     bool         // some incarnation at the address has answered a hello with kvferry's extensions
	otherKind        bool         // at the last attempt the peer was of another kind
	unansweredHellos uint32       // unanswered hellos in a row, while met is false
	// readyTotal is how long the peer has been Ready, without the time since stateSince while it is Ready.
	readyTotal effects.Duration `snap:"skip"`
	stateSince effects.Time     `snap:"skip"` // when the peer entered its state
	heardAt    effects.Time     `snap:"skip"` // when the last reply of the peer arrived; for operators
}

// Kinds of this package's completions, and of its timers.
const (
	kindOpenInit uint8 = iota + 1
	kindHello
	kindImport
	kindBuffers
	kindLookup
	kindReach
	kindOpenLane // plus the number of the lane

	timerStage uint8 = 1 // a stage of a handshake has taken too long
	timerRetry uint8 = 2 // a failed peer is to be tried again
)

// State returns the peer's state and the code of the last failure, which is OK once the peer is Ready.
func (p *Outbound) State() (State, effects.Code) { return p.state, p.cause }

// ReadyTime returns how long the peer has been Ready in all. The difference of two results says how much of the time
// between the calls the peer was Ready.
func (p *Outbound) ReadyTime(now effects.Time) effects.Duration {
	if p.state == Ready {
		return p.readyTotal + now.Sub(p.stateSince)
	}
	return p.readyTotal
}

// enterState records that the peer is in another state from now on.
func (p *Outbound) enterState(now effects.Time, s State) { p.state, p.stateSince = s, now }

// IsAbsent reports whether no process listened at the peer's address at the last attempt.
func (p *Outbound) IsAbsent() bool { return p.absent }

// AttemptNumber returns a number that changes after each failed attempt to reach the peer.
func (p *Outbound) AttemptNumber() uint64 { return p.epoch }

// IsDoubtful reports whether the caller may end a ready link (FailPeer) to repeat the hello, because something that the
// peer stated does not fit and may have been damaged on its way. This is the case when the last hello is at least
// UnfitBackoff old. Two nodes that do not fit therefore shake hands no more often than a node tries a peer of another
// kind.
func (p *Outbound) IsDoubtful(now effects.Time) bool {
	return p.state == Ready && now >= p.trustedUntil
}

// Addr returns the peer's address.
func (p *Outbound) Addr() PeerAddr { return p.addr }

// IsSilent reports whether the peer accepted a connection but has not answered a hello, in the present attempt or in
// the last one.
func (p *Outbound) IsSilent() bool {
	return p.state == Greeting || p.why != nil && p.why.Stage == effects.StageHello && p.cause == effects.Expired
}
