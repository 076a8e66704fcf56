package link

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// Where is a receiver's address: host and ports, compared one by one.
type Where struct {
	Host      string
	InitPort  uint16
	AllocPort uint16 // 0: it shares, and says in the handshake where it takes lookups
}

// Shares says that the peer is asked which chunks it has.
func (w Where) Shares() bool { return w.AllocPort == 0 }

// State is how far an Outbound's handshake is.
type State uint8

// States, in the order of a handshake.
const (
	Idle      State = iota // nobody wants it
	Opening                // waiting for the init connection
	Greeting               // hello sent
	Importing              // the data plane connects
	Listing                // asked for the buffers
	Ready                  // usable
	Backoff                // failed; waiting to try again
)

// Outbound is the sender's side of a link.
type Outbound struct {
	where   Where
	hash    uint64
	state   State
	epoch   uint64       `snap:"past"` // attempts, of all that had this slot; completions of a former one are stale
	wanted  uint32       // how many puts need it
	owed    uint32       // completions outstanding, those of former attempts included
	conn    Conn         // to its init port, while a handshake goes on
	row     table.Handle // of its Incarnation
	fails   uint32
	cause   effects.Code
	why     *effects.Why   // of cause
	timer   kernel.TimerID `snap:"set"`
	lanes   [Lanes]Conn
	trusted effects.Time // until when nobody doubts its last hello
	lookup  effects.Addr // where one that shares takes lookups
	changed bool
	absent  bool   // nobody listened at its last attempt
	met     bool   // it said hello, in some life, as our kind does
	alien   bool   // at its last attempt it was of another kind
	silent  uint32 // hellos in a row that nobody answered, of one who never did
}

// Kinds of this room's completions and deadlines.
const (
	kindOpenInit uint8 = iota + 1
	kindHello
	kindImport
	kindList
	kindSide
	kindReach
	kindOpenLane // + lane

	timerStage uint8 = 1 // when a handshake stage has taken too long
	timerRetry uint8 = 2 // when to try a failed peer again
)

// State returns the peer's state and, in Backoff, why it failed last.
func (p *Outbound) State() (State, effects.Code) { return p.state, p.cause }

// Absent says whether nobody listened where the last attempt to reach a peer went.
func (p *Outbound) Absent() bool { return p.absent }

// Attempt tells one try to reach a peer from the next: it is another number after each that failed.
func (p *Outbound) Attempt() uint64 { return p.epoch }

// Doubtful says whether a peer may be asked to say hello anew (Fail) because something does not fit that it said: that
// may have been damaged on its way. Its last hello is as old then as peers of another kind are left alone for: two that
// do not fit shake hands no more often.
func (p *Outbound) Doubtful(now effects.Time) bool { return p.state == Ready && now >= p.trusted }

// Where is the peer's address.
func (p *Outbound) Where() Where { return p.where }

// Silent says that a peer has been connected to, and has not answered a hello in its present attempt or the last one.
func (p *Outbound) Silent() bool {
	return p.state == Greeting || p.why != nil && p.why.Stage == effects.StageHello && p.cause == effects.Expired
}
