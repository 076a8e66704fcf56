package registrar

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/prng"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// A Registrar registers a worker with directories and reports the contents of the worker's store. The owner passes
// completions and deadlines to Step and OnTimer, and calls Pump in each step in which the store may have changed.
type Registrar struct {
	cfg         Config `snap:"share"`
	pace        pace
	unusedHash  uint64 `snap:"share"` // a hash that no chunk has
	directories []directoryState
	leaving     bool
	lastChange  uint64 // the store's change count at the latest Pump of all directories

	changes []store.Change         `snap:"scratch"`
	ops     []protocol.KVOperation `snap:"scratch"`
	keys    []protocol.ChunkHash   `snap:"scratch"`
}

// A phase is the state of the worker's registration with a directory.
type phase uint8

const (
	phaseAbsent  phase = iota // the directory does not know the worker
	phaseKnown                // the directory has confirmed the registration
	phaseLeaving              // the worker will be deregistered
	phaseStopped              // nothing more is sent to the directory
)

// A requestKind is the request in flight on the request line.
type requestKind uint8

const (
	requestNone requestKind = iota
	requestRegister
	requestSyncBegin
	requestStatus
)

// A postingKind is the message that was handed to the feed and is not completed.
type postingKind uint8

const (
	postingNone postingKind = iota
	postingOperations
	postingSyncBatch
	postingSyncEnd
	postingDeregister
)

// The connCount of a directory.
const (
	requestConn = iota
	feedConn
	heartbeatConn
	connCount
)

// A directoryState is the state of a directory.
type directoryState struct {
	phase   phase
	conns   [connCount]clientConn
	request requestKind
	// registerSent says that a registration was sent, so that the directory may know the worker.
	registerSent bool

	// heartbeatAddr is the address for heartbeats from the directory's reply. Empty: heartbeats are sent to the
	// configured address.
	heartbeatAddr effects.Addr
	heartbeatAt   effects.Time
	// silence is the time after which the directory drops a silent worker, as stated by the directory; 0: not stated.
	silence              effects.Duration
	unansweredHeartbeats uint32 // consecutive heartbeats without a reply
	reportSent           bool   // a report was sent since the last heartbeat

	nextOperation  uint64 // number of the next operation
	reportedChange uint64 // latest change of the store that was reported
	reportAt       effects.Time
	posting        postingKind
	afterPosting   reportProgress // progress when the posted operations are completed

	sync          sync
	leaveDeadline effects.Time
	lastCode      effects.Code // latest failure; OK: none since the registration
	lastReason    string       // the directory's words for that failure

	timer   kernel.TimerID `snap:"set"`
	timerAt effects.Time
}

// hasReported reports whether an operation or a sync was sent to the directory so far.
func (d *directoryState) hasReported() bool { return d.nextOperation > 0 || d.sync.count > 0 }

// reportProgress is the progress of the reports to a directory.
type reportProgress struct{ nextOperation, reportedChange uint64 }

// New returns a registrar that is not registered anywhere. The configuration must pass its Check.
func New(c Config) Registrar { return new(Registrar).Recycle(c) }

// Recycle returns the same as New, and reuses the memory of r. The old r must not be used any more.
func (r *Registrar) Recycle(c Config) Registrar {
	from := prng.New(c.Seed)
	return Registrar{
		cfg: c, unusedHash: from.Next(), pace: pace{source: from, delayMin: c.BackoffMin, delayMax: c.BackoffMax},
		directories: table.RecycleSlice(r.directories, len(c.Directories)), ops: r.ops[:0], keys: r.keys[:0], lastChange: noChange,
	}
}

// noChange is not a change count of a store, so that the first Pump starts the registrations.
const noChange = ^uint64(0)

// Begin starts the registrations, like the first Pump.
func (r *Registrar) Begin(v *env.Env, s *store.Store) { r.pumpAll(v, s) }

// Pump reports changes of the store to all directories.
func (r *Registrar) Pump(v *env.Env, s *store.Store) {
	if s.LastChange() != r.lastChange {
		r.pumpAll(v, s)
	}
}

func (r *Registrar) pumpAll(v *env.Env, s *store.Store) {
	r.lastChange = s.LastChange()
	for i := range r.directories {
		r.pumpDirectory(v, s, i)
	}
}

// Leave starts to deregister the worker everywhere. Leaving is complete when CountActive returns 0, after
// [Config.LeaveTimeout] at the latest.
func (r *Registrar) Leave(v *env.Env, s *store.Store) {
	if r.leaving {
		return
	}
	r.leaving = true
	for i := range r.directories {
		d := &r.directories[i]
		d.phase, d.leaveDeadline, d.sync.stage = phaseLeaving, v.Now.Add(r.cfg.LeaveTimeout), noSync
		if !d.registerSent {
			r.stopDirectory(v, d)
		}
	}
	r.pumpAll(v, s)
}

// CountActive returns the number of directories to which messages may still be sent.
func (r *Registrar) CountActive() (n int) {
	for i := range r.directories {
		if r.directories[i].phase != phaseStopped {
			n++
		}
	}
	return n
}

// CountOutstanding returns the number of completions in flight: at most 1 on each line.
func (r *Registrar) CountOutstanding() (n int) {
	for i := range r.directories {
		for k := range r.directories[i].conns {
			n += int(r.directories[i].conns[k].outstanding)
		}
	}
	return n
}

// VisitTables reports the number of directories with a pending deadline.
func (r *Registrar) VisitTables(visit table.VisitFunc) {
	count := 0
	for i := range r.directories {
		if r.directories[i].timer != 0 {
			count++
		}
	}
	visit("directories told", count, table.Timed)
}

// A DirectoryStatus is the state of a directory for operators.
type DirectoryStatus struct {
	Known   bool
	Syncing bool
	Behind  uint64       // changes of the store that were not reported
	Code    effects.Code // latest failure
	Reason  string       // the directory's words for that failure
}

// Status returns the state of directory i in the configuration.
func (r *Registrar) Status(s *store.Store, i int) DirectoryStatus {
	d := &r.directories[i]
	return DirectoryStatus{
		Known: d.phase == phaseKnown, Syncing: d.sync.stage > syncWanted, Behind: s.LastChange() - d.reportedChange, Code: d.lastCode,
		Reason: d.lastReason,
	}
}

// pumpDirectory sends what is due to a directory, and sets the timer for the next call.
func (r *Registrar) pumpDirectory(v *env.Env, s *store.Store, i int) {
	d := &r.directories[i]
	r.closeOverdue(v, i)
	switch d.phase {
	case phaseAbsent:
		r.sendRegister(v, i)
	case phaseKnown:
		r.sendHeartbeat(v, s, i)
		r.postSync(v, s, i)
		r.sendReport(v, s, i)
		r.requestSync(v, s, i)
	case phaseLeaving:
		r.sendDeregister(v, i)
	case phaseStopped:
	}
	switch at := r.nextDue(i); {
	case at == 0:
		v.Timers.Stop(&d.timer)
	case d.timer == 0 || at != d.timerAt:
		d.timerAt = at
		v.Timers.Set(&d.timer, at, kernel.Ref{Owner: r.cfg.Owner, Subject: table.Handle(i + 1)})
	}
}

// closeOverdue closes the lines with overdue replies, and ends the deregistration when [Config.LeaveTimeout] is over.
func (r *Registrar) closeOverdue(v *env.Env, i int) {
	d := &r.directories[i]
	for k := range d.conns {
		if d.conns[k].isOverdue(v.Now) {
			r.onConnLost(v, i, k, effects.Expired)
		}
	}
	if d.phase == phaseLeaving && v.Now >= d.leaveDeadline {
		r.stopDirectory(v, d)
	}
}

// nextDue returns the instant at which the directory needs the next call of pump if no event arrives before; 0: never.
func (r *Registrar) nextDue(i int) (at effects.Time) {
	d := &r.directories[i]
	for k := range d.conns {
		if l := &d.conns[k]; l.replyDeadline != 0 && l.outstanding > 0 {
			at = earlierOf(at, l.replyDeadline)
		}
	}
	// wants considers line k, which is used at the instant when. A busy line needs no timer, because its completion
	// calls pump.
	consider := func(k int, when effects.Time) {
		if l := &d.conns[k]; l.outstanding == 0 {
			at = earlierOf(at, max(when, l.openAfter))
		}
	}
	switch d.phase {
	case phaseAbsent:
		consider(requestConn, 1)
	case phaseKnown:
		if r.wantsHeartbeats(i) {
			consider(heartbeatConn, d.heartbeatAt)
		}
		if d.reportAt != 0 && !d.mustWait() {
			consider(feedConn, d.reportAt)
		}
		switch d.sync.stage {
		case syncSending:
			consider(feedConn, d.sync.nextAt)
		case syncWanted:
			if d.posting == postingNone {
				consider(requestConn, d.sync.earliestNext)
			}
		case syncSent:
			consider(requestConn, d.sync.nextAt)
		case noSync, syncRequested:
		}
	case phaseLeaving:
		at = earlierOf(at, d.leaveDeadline)
		if d.conns[requestConn].outstanding == 0 && d.conns[heartbeatConn].outstanding == 0 {
			consider(feedConn, 1)
		}
	case phaseStopped:
	}
	return at
}

// OnTimer handles the timer of a directory.
func (r *Registrar) OnTimer(v *env.Env, s *store.Store, ref kernel.Ref) {
	i := int(ref.Subject.Slot())
	r.directories[i].timer = 0
	r.pumpDirectory(v, s, i)
}

// useConn reports whether a line is connected and free. If the line is not connected and may be opened now, useConn
// opens the line.
func (r *Registrar) useConn(v *env.Env, i, k int) bool {
	l := &r.directories[i].conns[k]
	ch, to := r.endpointOf(i, k)
	if l.conn != 0 && l.outstanding == 0 && l.addr != to { // The directory has a new address.
		l.closeConn(v, &r.pace)
	}
	if l.mayOpen(v.Now) {
		l.addr = to
		l.openConn(v, r.connRef(i, k), ch, 0, to)
	}
	return l.isReady(1)
}

// endpointOf returns the channel and the address of a line.
func (r *Registrar) endpointOf(i, k int) (effects.Channel, effects.Addr) {
	to := &r.cfg.Directories[i]
	switch {
	case k == feedConn:
		return effects.ChannelFeed, to.FeedAddr
	case k == heartbeatConn && r.directories[i].heartbeatAddr != effects.Addr{}:
		return effects.ChannelHeartbeat, r.directories[i].heartbeatAddr
	}
	return effects.ChannelDirectory, to.RequestAddr
}

func (r *Registrar) connRef(i, k int) kernel.Ref {
	return kernel.Ref{Owner: r.cfg.Owner, Kind: uint8(k), Subject: table.Handle(i + 1)}
}
