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
// completions and deadlines to Step and Due, and calls Pump in each step in which the store may have changed.
type Registrar struct {
	cfg     Config `snap:"share"`
	pace    pace
	nobody  uint64 `snap:"share"` // a hash that no chunk has
	rows    []row
	leaving bool
	seen    uint64 // the store's change count at the latest Pump of all directories

	changes []store.Change         `snap:"scratch"`
	ops     []protocol.KVOperation `snap:"scratch"`
	keys    []protocol.ChunkHash   `snap:"scratch"`
}

// A phase is the state of the worker's registration with a directory.
type phase uint8

const (
	absent  phase = iota // the directory does not know the worker
	known                // the directory has confirmed the registration
	leaving              // the worker will be deregistered
	gone                 // nothing more is sent to the directory
)

// An asking is the request in flight on the request line.
type asking uint8

const (
	nothing asking = iota
	registration
	syncBegin
	syncStatus
)

// A posting is the message that was handed to the feed and is not completed.
type posting uint8

const (
	noPosting posting = iota
	operations
	syncBatch
	syncEnd
	deregistration
)

// The lines of a directory.
const (
	questions = iota
	feed
	heartbeat
	lines
)

// A row is the state of a directory.
type row struct {
	phase phase
	line  [lines]line
	asked asking
	// met says that a registration was sent, so that the directory may know the worker.
	met bool

	// beats is the address for heartbeats from the directory's reply. Empty: heartbeats are sent to the configured
	// address.
	beats  effects.Addr
	beatAt effects.Time
	// silence is the time after which the directory drops a silent worker, as stated by the directory; 0: not stated.
	silence  effects.Duration
	unheard  uint32 // consecutive heartbeats without a reply
	reminded bool   // a report was sent since the last heartbeat

	next     uint64 // number of the next operation
	read     uint64 // latest change of the store that was reported
	reportAt effects.Time
	posted   posting
	then     told // progress when the posted operations are completed

	sync    sync
	leaveBy effects.Time
	code    effects.Code // latest failure; OK: none since the registration
	said    string       // the directory's words for that failure

	timer kernel.TimerID `snap:"set"`
	wake  effects.Time
}

// spoken reports whether an operation or a sync was sent to the directory so far.
func (d *row) spoken() bool { return d.next > 0 || d.sync.count > 0 }

// told is the progress of the reports to a directory.
type told struct{ next, read uint64 }

// New returns a registrar that is not registered anywhere. The configuration must pass its Check.
func New(c Config) Registrar { return new(Registrar).Emptied(c) }

// Emptied returns the same as New, and reuses the memory of r. The old r must not be used any more.
func (r *Registrar) Emptied(c Config) Registrar {
	from := prng.New(c.Seed)
	return Registrar{
		cfg: c, nobody: from.Next(), pace: pace{from: from, min: c.BackoffMin, max: c.BackoffMax},
		rows: table.Zeroed(r.rows, len(c.Directories)), ops: r.ops[:0], keys: r.keys[:0], seen: never,
	}
}

// never is not a change count of a store, so that the first Pump starts the registrations.
const never = ^uint64(0)

// Begin starts the registrations, like the first Pump.
func (r *Registrar) Begin(v *env.Env, s *store.Store) { r.all(v, s) }

// Pump reports changes of the store to all directories.
func (r *Registrar) Pump(v *env.Env, s *store.Store) {
	if s.Changed() != r.seen {
		r.all(v, s)
	}
}

func (r *Registrar) all(v *env.Env, s *store.Store) {
	r.seen = s.Changed()
	for i := range r.rows {
		r.pump(v, s, i)
	}
}

// Leave starts to deregister the worker everywhere. Leaving is complete when Left returns 0, after [Config.Leave] at
// the latest.
func (r *Registrar) Leave(v *env.Env, s *store.Store) {
	if r.leaving {
		return
	}
	r.leaving = true
	for i := range r.rows {
		d := &r.rows[i]
		d.phase, d.leaveBy, d.sync.stage = leaving, v.Now.Add(r.cfg.Leave), noSync
		if !d.met {
			r.goes(v, d)
		}
	}
	r.all(v, s)
}

// Left returns the number of directories to which messages may still be sent.
func (r *Registrar) Left() (n int) {
	for i := range r.rows {
		if r.rows[i].phase != gone {
			n++
		}
	}
	return n
}

// Owed returns the number of completions in flight: at most 1 on each line.
func (r *Registrar) Owed() (n int) {
	for i := range r.rows {
		for k := range r.rows[i].line {
			n += int(r.rows[i].line[k].owed)
		}
	}
	return n
}

// Tables reports the number of directories with a pending deadline.
func (r *Registrar) Tables(visit table.Visit) {
	timed := 0
	for i := range r.rows {
		if r.rows[i].timer != 0 {
			timed++
		}
	}
	visit("directories told", timed, table.Timed)
}

// A Standing is the state of a directory for operators.
type Standing struct {
	Known   bool
	Syncing bool
	Behind  uint64       // changes of the store that were not reported
	Code    effects.Code // latest failure
	Said    string       // the directory's words for that failure
}

// Standing returns the state of directory i in the configuration.
func (r *Registrar) Standing(s *store.Store, i int) Standing {
	d := &r.rows[i]
	return Standing{
		Known: d.phase == known, Syncing: d.sync.stage > syncWanted, Behind: s.Changed() - d.read, Code: d.code, Said: d.said,
	}
}

// pump sends what is due to a directory, and sets the timer for the next call.
func (r *Registrar) pump(v *env.Env, s *store.Store, i int) {
	d := &r.rows[i]
	r.loseLate(v, i)
	switch d.phase {
	case absent:
		r.register(v, i)
	case known:
		r.beat(v, s, i)
		r.tellSync(v, s, i)
		r.report(v, s, i)
		r.askSync(v, s, i)
	case leaving:
		r.deregister(v, i)
	case gone:
	}
	switch at := r.due(i); {
	case at == 0:
		v.Timers.Stop(&d.timer)
	case d.timer == 0 || at != d.wake:
		d.wake = at
		v.Timers.Set(&d.timer, at, kernel.Ref{Owner: r.cfg.Owner, Subject: table.Handle(i + 1)})
	}
}

// loseLate closes the lines with overdue replies, and ends the deregistration when [Config.Leave] is over.
func (r *Registrar) loseLate(v *env.Env, i int) {
	d := &r.rows[i]
	for k := range d.line {
		if d.line[k].late(v.Now) {
			r.lost(v, i, k, effects.Expired)
		}
	}
	if d.phase == leaving && v.Now >= d.leaveBy {
		r.goes(v, d)
	}
}

// due returns the instant at which the directory needs the next call of pump if no event arrives before; 0: never.
func (r *Registrar) due(i int) (at effects.Time) {
	d := &r.rows[i]
	for k := range d.line {
		if l := &d.line[k]; l.until != 0 && l.owed > 0 {
			at = sooner(at, l.until)
		}
	}
	// wants considers line k, which is used at the instant when. A busy line needs no timer, because its completion
	// calls pump.
	wants := func(k int, when effects.Time) {
		if l := &d.line[k]; l.owed == 0 {
			at = sooner(at, max(when, l.again))
		}
	}
	switch d.phase {
	case absent:
		wants(questions, 1)
	case known:
		if r.beats(i) {
			wants(heartbeat, d.beatAt)
		}
		if d.reportAt != 0 && !d.holdsBack() {
			wants(feed, d.reportAt)
		}
		switch d.sync.stage {
		case syncTelling:
			wants(feed, d.sync.at)
		case syncWanted:
			if d.posted == noPosting {
				wants(questions, d.sync.next)
			}
		case syncEnded:
			wants(questions, d.sync.at)
		case noSync, syncAsked:
		}
	case leaving:
		at = sooner(at, d.leaveBy)
		if d.line[questions].owed == 0 && d.line[heartbeat].owed == 0 {
			wants(feed, 1)
		}
	case gone:
	}
	return at
}

// Due handles the timer of a directory.
func (r *Registrar) Due(v *env.Env, s *store.Store, ref kernel.Ref) {
	i := int(ref.Subject.Slot())
	r.rows[i].timer = 0
	r.pump(v, s, i)
}

// use reports whether a line is connected and free. If the line is not connected and may be opened now, use opens the
// line.
func (r *Registrar) use(v *env.Env, i, k int) bool {
	l := &r.rows[i].line[k]
	ch, to := r.end(i, k)
	if l.conn != 0 && l.owed == 0 && l.to != to { // The directory has a new address.
		l.close(v, &r.pace)
	}
	if l.mayOpen(v.Now) {
		l.to = to
		l.open(v, r.ref(i, k), ch, 0, to)
	}
	return l.ready(1)
}

// end returns the channel and the address of a line.
func (r *Registrar) end(i, k int) (effects.Channel, effects.Addr) {
	to := &r.cfg.Directories[i]
	switch {
	case k == feed:
		return effects.ChannelFeed, to.Feed
	case k == heartbeat && r.rows[i].beats != effects.Addr{}:
		return effects.ChannelHeartbeat, r.rows[i].beats
	}
	return effects.ChannelDirectory, to.Asks
}

func (r *Registrar) ref(i, k int) kernel.Ref {
	return kernel.Ref{Owner: r.cfg.Owner, Kind: uint8(k), Subject: table.Handle(i + 1)}
}
