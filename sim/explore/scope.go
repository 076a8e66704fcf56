package explore

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// Timers say when deadlines may pass in a scope.
type Timers uint8

const (
	// TimersIdle: only when nothing else can happen. Messages and transfers are quick.
	TimersIdle Timers = iota
	// TimersAny: at any time, whatever is still under way. Everything may be arbitrarily late.
	TimersAny
	// TimersUnits: likewise, and time may also pass by one unit to no deadline, so that
	// deadlines of different nodes come in every order that whole units allow.
	TimersUnits
)

// Unit is what all spans of scopes are multiples of, so that situations recur.
const Unit = 100 * effects.Millisecond

// unitsMax is more than any span has that a promise to an engine depends on.
const unitsMax = 8

// A Scope is a world so small that everything which can happen in it can be tried.
type Scope struct {
	Name  string
	About string // one line

	Senders, Receivers int
	Both               bool // the senders are the receivers, too
	Leased             bool
	Communicators      bool   // hardware is ended as a whole; with Leased
	Pull               bool   // all senders offer their chunks to be read
	Delay              bool   // all receivers keep such offers until their engines fetch
	Cache              bool   // all receivers keep what nobody expects any more while there is room
	Staging            uint32 // pages that fetches read into; 0: 1
	SenderPages        uint32 // 0: enough for all chunks at once
	ReceiverPages      uint32 // 0: likewise
	ReservePPM         uint32 // of a sender's pages, that are never offered
	Jobs               []Job
	Shape              func(*plan.Plan) // changes the plan of it, for what only one system knows; nil: nothing
	Timers             Timers
	// Patience is how long a put may take, in units of which a peer's answer may take two; 0: 6.
	Patience int

	// Faults is how many of the allowed faults may strike, each at any moment.
	Faults        int
	CrashSender   bool // between steps, and between any two effects of one
	CrashReceiver bool
	Drain         bool         // a receiver is told to leave, and leaves when it has drained
	Abort         bool         // of a reserve, a put or a get
	Cut           bool         // of a connection or a link, both ends being told
	Stall         bool         // a process stops and goes on later; its hardware does not
	Harm          string       // what else may go wrong, in a word of who plays: [Run]
	Strikes       []plan.Fault // of those that campaigns draw on the fly, wherever they have an occasion

	// System is what runs, if not PD. Then these are what its engines want, and the processes that may die.
	System System
	Items  []plan.Item
	Crash  []string
}

// A Job is one request: its chunks go from a sender to a receiver in batches.
type Job struct {
	Sender, Receiver int
	Chunks           []int // by number: the same number is the same key
	Batch            int   // chunks in a put; 0: all
	Early            bool  // its reader asks before it is told
	Act              int   // it begins with its act: when the act before is over, and nothing else can happen
}

// mayDie says whether a node may die in a scope.
func (s *Scope) mayDie(run Run, n *world.Node) bool {
	return n.Sends() && s.CrashSender || n.Receives() && s.CrashReceiver || slices.Contains(s.Crash, run.Called(n))
}

// begin makes the scope's first situation.
func (s *Scope) begin() (*branch, error) {
	run, err := s.System.Play(s)
	if err != nil {
		return nil, err
	}
	b := &branch{run: run, w: run.Whole(), left: s.Faults, frozen: plan.Nobody}
	b.settle()
	return b, nil
}
