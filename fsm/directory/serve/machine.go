package serve

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/directory"
	"github.com/kvferry/kvferry/fsm/directory/replica"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// A Machine is a directory that a driver can run.
type Machine struct {
	config    Config `snap:"share"`
	directory directory.Directory
	clock     awakeClock // clock for all calls of known
	log       replica.Log
	// reportedDown is the state of the log (down or not) that was last reported by a fact.
	reportedDown   bool
	reportedMissed uint64 // gaps in the log that were reported by facts
	reportedOther  uint64 // entries of other versions in the log that were reported by facts
	// malformedReported says that a malformed message in the current log entry was reported by a fact.
	malformedReported bool
	messages          messages `snap:"skip"`
}

// New returns a machine with an empty directory. It fails if the configuration is invalid.
func New(c Config) (*Machine, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	return &Machine{
		config: c, directory: directory.New(c.Directory), clock: newAwakeClock(&c.Directory), log: replica.New(c.Log),
	}, nil
}

// InstancesWith appends the names of the instances that have a chunk: see [directory.Directory.InstancesWith].
func (m *Machine) InstancesWith(worker uint32, hash uint64, names []string) []string {
	return m.directory.InstancesWith(worker, hash, names)
}

// Figures returns the counts of the directory.
func (m *Machine) Figures() directory.Figures { return m.directory.Figures() }

// ReplicationStatus returns the number of workers that are known only by reports of another directory, and whether the
// shared log is down.
func (m *Machine) ReplicationStatus() (workers int, down bool) {
	return m.directory.Replication().CountRemoteWorkers(), m.log.IsDown()
}

// VisitTables reports the sizes of the tables that are empty in an idle machine.
func (m *Machine) VisitTables(visit func(name string, n, most int)) {
	f, c := m.directory.Figures(), &m.config.Directory
	visit("syncs", f.Syncs, c.Syncs)
	visit("chunks to sweep away", f.Retired, c.Chunks)
}

// VisitKeptTables reports the sizes of all tables of records, with their limits.
func (m *Machine) VisitKeptTables(visit func(name string, n, most int)) {
	f, c := m.directory.Figures(), &m.config.Directory
	visit("instances", f.Instances, c.Instances)
	visit("workers", f.Workers, c.Workers)
	visit("locations", f.Locations, c.Workers*c.LocationsPerWorker)
	visit("holders", f.Holders, c.Holders)
	visit("chunks", f.Chunks, c.Chunks)
	m.log.VisitKeptTables(visit)
}

// RecountShares counts again what each origin has of every table that the origins share.
func (m *Machine) RecountShares(r *table.Recount) { m.directory.RecountShares(r) }

// Deadline returns the instant of the next Tick that the machine needs.
func (m *Machine) Deadline() (effects.Time, bool) {
	at, ok := m.directory.Deadline()
	if ok {
		at = at.Add(m.clock.uncounted)
	}
	if m.clock.tickRequested && (!ok || m.clock.nextPulse() < at) {
		at, ok = m.clock.nextPulse(), true
	}
	if log, found := m.log.Deadline(); found && (!ok || log < at) {
		return log, true
	}
	return at, ok
}

// Step handles an event. Everything that has run out of time ends before a request is answered. Deadlines for the log
// are in the driver's time, because the log runs outside this process; deadlines for workers are in the time of the
// awake clock.
func (m *Machine) Step(now effects.Time, ev effects.Event, out *effects.Effects) {
	awake := m.clock.recordStep(now)
	m.directory.Advance(awake)
	m.log.Step(now, ev, out)
	m.followLog(awake, out)
	switch x := ev.(type) {
	case *effects.ConnLost:
		m.directory.ConnectionLost(awake, uint64(x.Conn))
	case *effects.Received:
		m.handleMessage(&receivedMessage{Received: x, now: awake, out: out})
	case *effects.Command: // A directory has no commands.
		out.Deliver(effects.Deliver{Ticket: x.Ticket, Code: effects.Unsupported})
	default: // Events of the log's connections.
	}
	m.sendWants(awake)
	m.log.SendDue(now, out)
	m.emitNotes(out)
	_, due := m.directory.Deadline()
	m.clock.tickRequested = due || m.directory.HasWorkers()
}

// emitNotes emits facts for the notes of the directory and for changes in the state of the log.
func (m *Machine) emitNotes(out *effects.Effects) {
	for _, n := range m.directory.PendingNotes() {
		out.Observe(effects.Observe{
			Fact: effects.FactDirectory, ID: uint64(n.Kind), Count: n.Worker,
			Why: &effects.Why{Name: effects.SanitizeText([]byte(n.Instance)), Field: effects.SanitizeText([]byte(n.Location))},
		})
	}
	m.directory.ClearNotes()
	if down := m.log.IsDown(); down != m.reportedDown {
		m.reportedDown = down
		event := directory.LogUp
		if down {
			event = directory.LogDown
		}
		m.emitLogNote(event, out)
	}
	if missed := m.log.CountMissed(); missed != m.reportedMissed {
		m.reportedMissed = missed
		m.emitLogNote(directory.LogTruncated, out)
	}
	if others := m.log.CountOtherVersions(); others != m.reportedOther {
		m.reportedOther = others
		m.emitLogNote(directory.LogVersion, out)
	}
}

// emitLogNote emits a fact about the log.
func (m *Machine) emitLogNote(e directory.NoteKind, out *effects.Effects) {
	out.Observe(effects.Observe{Fact: effects.FactDirectory, ID: uint64(e), Why: &effects.Why{}})
}

// receivedMessage is a received message with the context of its step.
type receivedMessage struct {
	*effects.Received
	now effects.Time // instant of the awake clock
	out *effects.Effects

	// By and Gaps of the directory.Sender: the directory that received the message from the worker.
	directory, gaps uint64
}

// messages holds the decoded messages and buffers of the latest step, so that later messages reuse the memory.
type messages struct {
	lookup     protocol.BatchedP2PLookupMsg
	operations protocol.BatchedKVOperationMsg
	batch      protocol.FullSyncBatchMsg

	hashes       []uint64
	changes      []directory.Operation
	peers        []directory.Peer
	lookupReply  protocol.BatchedP2PLookupRetMsg
	names        []byte
	messageBytes []byte
	frame        []byte
	missing      []int64
	wants        []directory.WorkerRef
}
