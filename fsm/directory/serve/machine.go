package serve

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/directory"
	"github.com/kvferry/kvferry/fsm/directory/replica"
	"github.com/kvferry/kvferry/protocol"
)

// A Machine is a directory that a driver can run.
type Machine struct {
	config Config `snap:"share"`
	known  directory.Directory
	awake  awakeClock // clock for all calls of known
	log    replica.Log
	// was is the state of the log (down or not) that was last reported by a fact.
	was    bool
	missed uint64 // gaps in the log that were reported by facts
	// blamed says that a malformed message in the current log entry was reported by a fact.
	blamed bool
	read   messages `snap:"skip"`
}

// New returns a machine with an empty directory. It fails if the configuration is invalid.
func New(c Config) (*Machine, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	return &Machine{
		config: c, known: directory.New(c.Directory), awake: newAwakeClock(&c.Directory), log: replica.New(c.Log),
	}, nil
}

// Having appends the names of the instances that have a chunk: see [directory.Directory.Having].
func (m *Machine) Having(worker uint32, hash uint64, names []string) []string {
	return m.known.Having(worker, hash, names)
}

// Figures returns the counts of the directory.
func (m *Machine) Figures() directory.Figures { return m.known.Figures() }

// Told returns the number of workers that are known only by reports of another directory, and whether the shared log
// is down.
func (m *Machine) Told() (workers int, down bool) { return m.known.Others().Told(), m.log.Down() }

// Tables reports the sizes of the tables that are empty in an idle machine.
func (m *Machine) Tables(visit func(name string, n, most int)) {
	f, c := m.known.Figures(), &m.config.Directory
	visit("syncs", f.Syncs, c.Syncs)
	visit("chunks to sweep away", f.Retired, c.Chunks)
}

// Remembers reports the sizes of all tables of records, with their limits.
func (m *Machine) Remembers(visit func(name string, n, most int)) {
	f, c := m.known.Figures(), &m.config.Directory
	visit("instances", f.Instances, c.Instances)
	visit("workers", f.Workers, c.Workers)
	visit("locations", f.Locations, c.Workers*c.Locations)
	visit("holders", f.Holders, c.Holders)
	visit("chunks", f.Chunks, c.Chunks)
	m.log.Remembers(visit)
}

// Deadline returns the instant of the next Tick that the machine needs.
func (m *Machine) Deadline() (effects.Time, bool) {
	at, ok := m.known.Deadline()
	if ok {
		at = at.Add(m.awake.asleep)
	}
	if m.awake.ticks && (!ok || m.awake.next() < at) {
		at, ok = m.awake.next(), true
	}
	if log, is := m.log.Deadline(); is && (!ok || log < at) {
		return log, true
	}
	return at, ok
}

// Step handles an event. Everything that has run out of time ends before a request is answered. Deadlines for the log
// are in the driver's time, because the log runs outside this process; deadlines for workers are in the time of the
// awake clock.
func (m *Machine) Step(now effects.Time, ev effects.Event, out *effects.Effects) {
	awake := m.awake.step(now)
	m.known.Advance(awake)
	m.log.Step(now, ev, out)
	m.follow(awake, out)
	switch x := ev.(type) {
	case *effects.ConnLost:
		m.known.ConnectionLost(awake, uint64(x.Conn))
	case *effects.Received:
		m.hear(&heard{Received: x, now: awake, out: out})
	case *effects.Command: // A directory has no commands.
		out.Deliver(effects.Deliver{Ticket: x.Ticket, Code: effects.Unsupported})
	default: // Events of the log's connections.
	}
	m.wants(awake)
	m.log.GoOn(now, out)
	m.tell(out)
	_, due := m.known.Deadline()
	m.awake.ticks = due || m.known.Knows()
}

// tell emits facts for the notes of the directory and for changes in the state of the log.
func (m *Machine) tell(out *effects.Effects) {
	for _, n := range m.known.News() {
		out.Observe(effects.Observe{
			Fact: effects.FactDirectory, ID: uint64(n.Event), Count: n.Worker,
			Why: &effects.Why{Name: effects.Words([]byte(n.Instance)), Field: effects.Words([]byte(n.Location))},
		})
	}
	m.known.HeardNews()
	if down := m.log.Down(); down != m.was {
		m.was = down
		event := directory.LogAnswers
		if down {
			event = directory.LogDown
		}
		m.notes(event, out)
	}
	if missed := m.log.Missed(); missed != m.missed {
		m.missed = missed
		m.notes(directory.LogShort, out)
	}
}

// notes emits a fact about the log.
func (m *Machine) notes(e directory.Event, out *effects.Effects) {
	out.Observe(effects.Observe{Fact: effects.FactDirectory, ID: uint64(e), Why: &effects.Why{}})
}

// heard is a received message with the context of its step.
type heard struct {
	*effects.Received
	now effects.Time // instant of the awake clock
	out *effects.Effects

	// By and Gaps of the directory.Sender: the directory that received the message from the worker.
	by, gaps uint64
}

// messages holds the decoded messages and buffers of the latest step, so that later messages reuse the memory.
type messages struct {
	lookup     protocol.BatchedP2PLookupMsg
	operations protocol.BatchedKVOperationMsg
	batch      protocol.FullSyncBatchMsg

	hashes  []uint64
	changes []directory.Operation
	peers   []directory.Peer
	answer  protocol.BatchedP2PLookupRetMsg
	names   []byte
	message []byte
	missing []int64
	wants   []directory.Want
}
