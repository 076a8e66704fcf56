package serve

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/directory"
	"github.com/kvferry/kvferry/fsm/directory/replica"
	"github.com/kvferry/kvferry/protocol"
)

// A Machine is a directory that drivers can run.
type Machine struct {
	config Config `snap:"share"`
	known  directory.Directory
	awake  awakeClock // by which known counts
	log    replica.Log
	was    bool     // the log was down, as was said last
	missed uint64   // gaps in it that were told of
	blamed bool     // something in the entry that is heard was no message, which was told
	read   messages `snap:"skip"`
}

// New makes one that knows nobody. The error names what is wrong with the configuration.
func New(c Config) (*Machine, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	return &Machine{
		config: c, known: directory.New(c.Directory), awake: newAwakeClock(&c.Directory), log: replica.New(c.Log),
	}, nil
}

// Having says which instances have a chunk: see [directory.Directory.Having].
func (m *Machine) Having(worker uint32, hash uint64, names []string) []string {
	return m.known.Having(worker, hash, names)
}

// Figures counts what it knows.
func (m *Machine) Figures() directory.Figures { return m.known.Figures() }

// Told is how many workers it knows by what other directories tell alone, and whether the log by which they do is down.
func (m *Machine) Told() (workers int, down bool) { return m.known.Others().Told(), m.log.Down() }

// Tables shows what there is nothing in when nothing happens.
func (m *Machine) Tables(visit func(name string, n, most int)) {
	f, c := m.known.Figures(), &m.config.Directory
	visit("syncs", f.Syncs, c.Syncs)
	visit("chunks to sweep away", f.Retired, c.Chunks)
}

// Remembers shows what it keeps.
func (m *Machine) Remembers(visit func(name string, n, most int)) {
	f, c := m.known.Figures(), &m.config.Directory
	visit("instances", f.Instances, c.Instances)
	visit("workers", f.Workers, c.Workers)
	visit("locations", f.Locations, c.Workers*c.Locations)
	visit("holders", f.Holders, c.Holders)
	visit("chunks", f.Chunks, c.Chunks)
	m.log.Remembers(visit)
}

// Deadline is when it wants a Tick.
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

// Step consumes one event. Whose time is over has ended before anything is answered. The log is outside of this process,
// so its times go on while the machine is asleep; what it knows of workers counts the time that it was awake.
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
	case *effects.Command: // There is none that a directory knows.
		out.Deliver(effects.Deliver{Ticket: x.Ticket, Code: effects.Unsupported})
	default: // Nothing of a worker's.
	}
	m.wants(awake)
	m.log.GoOn(now, out)
	m.tell(out)
	_, due := m.known.Deadline()
	m.awake.ticks = due || m.known.Knows()
}

// tell says what the directory notes.
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

// notes tells of the log.
func (m *Machine) notes(e directory.Event, out *effects.Effects) {
	out.Observe(effects.Observe{Fact: effects.FactDirectory, ID: uint64(e), Why: &effects.Why{}})
}

// heard is a message, and where what comes of it goes.
type heard struct {
	*effects.Received
	now effects.Time // by the clock of the time that the machine was awake
	out *effects.Effects

	by, gaps uint64 // whose word it is, as in a directory.Sender
}

// messages are what was read last: the next ones are read into their memory.
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
