package explore

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// Timers states when deadlines may pass in a scope.
type Timers uint8

const (
	// TimersIdle: deadlines pass only when nothing else can happen. Messages and transfers are fast.
	TimersIdle Timers = iota
	// TimersAny: deadlines pass at any time, whatever is in flight. Everything may be arbitrarily late.
	TimersAny
	// TimersUnits: as TimersAny, and time may also pass by one unit without a deadline. Deadlines of different nodes
	// then occur in every order that whole units allow.
	TimersUnits
)

// Unit divides all time spans of scopes, so that states recur.
const Unit = 100 * effects.Millisecond

// nearUnitsMax is longer, in units, than any time span that a promise to an engine depends on.
const nearUnitsMax = 8

// A Scope describes a world that is so small that everything that can happen in it can be tried.
type Scope struct {
	Name        string
	Description string // a description in one line

	Senders, Receivers int
	Both               bool // the senders are also the receivers
	Leased             bool
	Communicators      bool   // hardware operations are ended as a whole; with Leased
	Pull               bool   // all senders offer their chunks to be read
	Delay              bool   // all receivers keep such offers until their engines fetch
	Cache              bool   // all receivers keep chunks that no request expects while there is room
	Staging            uint32 // pages into which fetches read; 0: 1
	SenderPages        uint32 // 0: enough for all chunks at once
	ReceiverPages      uint32 // 0: enough for all chunks at once
	ReservePPM         uint32 // share of a sender's pages that is never offered, in millionths
	Jobs               []Job
	AdjustPlan         func(*plan.Plan) // changes the scope's plan where a setting belongs to only one system; may be nil
	Timers             Timers
	// PutTimeout is how long a put may take, in units. A reply of a peer may take two units. 0 means 6.
	PutTimeout int

	// Faults is the number of the allowed faults that may strike, each at any moment.
	Faults        int
	CrashSender   bool // between steps, and between any two effects of a step
	CrashReceiver bool
	Drain         bool         // a receiver is asked to drain, and ends when it has drained
	Abort         bool         // of a reserve, a put or a get
	Cut           bool         // of a connection or a link; both ends are notified
	Stall         bool         // a process stops and resumes later; its hardware continues
	SystemFault   string       // a further kind of fault, by its name in the run: [Run]
	DrawnFaults   []plan.Fault // faults that campaigns draw during a run, at every occasion

	// System is the system to run, if not PD. Items are then the commands of the system's engines, and CrashProcesses
	// names the processes that may crash.
	System         System
	Items          []plan.Item
	CrashProcesses []string
}

// A Job is a request: its chunks are transferred from a sender to a receiver in batches.
type Job struct {
	Sender, Receiver int
	Chunks           []int // by number; the same number is the same key
	Batch            int   // chunks in a put; 0: all
	Early            bool  // the reader requests the chunks before the notification
	Act              int   // the act with which the job begins: when the previous act is over and nothing else can happen
}

// canCrash reports whether a node may crash in a scope.
func (s *Scope) canCrash(run Run, n *world.Node) bool {
	return n.IsSender() && s.CrashSender || n.IsReceiver() && s.CrashReceiver || slices.Contains(s.CrashProcesses, run.NodeName(n))
}

// newState creates the scope's first state.
func (s *Scope) newState() (*state, error) {
	run, err := s.System.NewRun(s)
	if err != nil {
		return nil, err
	}
	b := &state{run: run, w: run.BaseWorld(), faultsLeft: s.Faults, frozen: plan.NoNode}
	b.settleDeliveries()
	return b, nil
}
