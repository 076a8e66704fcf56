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

// A Registrar makes a worker known to directories, and tells them what it has. Whoever owns it tells it of each
// completion and deadline of its, and calls Pump in each step in which the store may have changed.
type Registrar struct {
	cfg     Config `snap:"share"`
	pace    pace
	nobody  uint64 `snap:"share"` // a hash that no chunk has
	rows    []row
	leaving bool
	seen    uint64 // changes of the store when all went on last

	changes []store.Change         `snap:"scratch"`
	ops     []protocol.KVOperation `snap:"scratch"`
	keys    []protocol.ChunkHash   `snap:"scratch"`
}

// A phase is how far a worker is with a directory.
type phase uint8

const (
	absent  phase = iota // it is not known there
	known                // the directory said that it is
	leaving              // it is about to be forgotten
	gone                 // nothing is said there any more
)

// A question is what an answer is awaited of, on the line of questions.
type asking uint8

const (
	nothing asking = iota
	registration
	syncBegin
	syncStatus
)

// A posting is what was handed to the feed last, until that is done.
type posting uint8

const (
	noPosting posting = iota
	operations
	syncBatch
	syncEnd
	deregistration
)

// Lines of a directory.
const (
	questions = iota
	feed
	heartbeat
	lines
)

// A row is what there is with one directory.
type row struct {
	phase phase
	line  [lines]line
	asked asking
	met   bool // it may know the worker: a registration was sent

	beats    effects.Addr // where heartbeats go; empty: as its configuration says
	beatAt   effects.Time
	silence  effects.Duration // after which it forgets the worker, as it says; 0: it does not say
	unheard  uint32           // heartbeats in a row
	reminded bool             // something was told since the last one

	next     uint64 // the number of the next operation
	read     uint64 // the newest change that was told
	reportAt effects.Time
	posted   posting
	then     told // of operations that are posted

	sync    sync
	leaveBy effects.Time
	code    effects.Code // what went wrong last; OK: nothing since it was known
	said    string       // its words

	timer kernel.TimerID `snap:"set"`
	wake  effects.Time
}

// told says whether anything was told so far.
func (d *row) spoken() bool { return d.next > 0 || d.sync.count > 0 }

// told is how far everything is that was told.
type told struct{ next, read uint64 }

// New returns one that is known nowhere. The configuration must pass its Check.
func New(c Config) Registrar { return new(Registrar).Emptied(c) }

// Emptied returns what New does, in the memory of r, which is not used any more.
func (r *Registrar) Emptied(c Config) Registrar {
	from := prng.New(c.Seed)
	return Registrar{
		cfg: c, nobody: from.Next(), pace: pace{from: from, min: c.BackoffMin, max: c.BackoffMax},
		rows: table.Zeroed(r.rows, len(c.Directories)), ops: r.ops[:0], keys: r.keys[:0], seen: never,
	}
}

// never is no number of changes of a store: the first Pump makes the worker known.
const never = ^uint64(0)

// Begin makes the worker known, as the first Pump does.
func (r *Registrar) Begin(v *env.Env, s *store.Store) { r.all(v, s) }

// Pump tells what has changed in the store.
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

// Leave begins to make the worker unknown everywhere. It ends, after [Config.Leave] at the latest, when Left is zero.
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

// Left is how many directories may still be told something.
func (r *Registrar) Left() (n int) {
	for i := range r.rows {
		if r.rows[i].phase != gone {
			n++
		}
	}
	return n
}

// Owed is how many completions are awaited: one, or none, on each line.
func (r *Registrar) Owed() (n int) {
	for i := range r.rows {
		for k := range r.rows[i].line {
			n += int(r.rows[i].line[k].owed)
		}
	}
	return n
}

// Tables shows how many directories something is to be done with at a time of theirs.
func (r *Registrar) Tables(visit table.Visit) {
	timed := 0
	for i := range r.rows {
		if r.rows[i].timer != 0 {
			timed++
		}
	}
	visit("directories told", timed, table.Timed)
}

// A Standing is how things are with one directory, for people.
type Standing struct {
	Known   bool
	Syncing bool
	Behind  uint64       // changes of the store that it was not told
	Code    effects.Code // what went wrong last
	Said    string       // its words of that
}

// Standing is that of the directory that is listed there.
func (r *Registrar) Standing(s *store.Store, i int) Standing {
	d := &r.rows[i]
	return Standing{
		Known: d.phase == known, Syncing: d.sync.stage > syncWanted, Behind: s.Changed() - d.read, Code: d.code, Said: d.said,
	}
}

// pump goes on with one directory, and sets when that is to be done again.
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

// loseLate gives up the lines whose answers are overdue.
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

// due is when something is to be done next with a directory, if nothing happens; 0: never.
func (r *Registrar) due(i int) (at effects.Time) {
	d := &r.rows[i]
	for k := range d.line {
		if l := &d.line[k]; l.until != 0 && l.owed > 0 {
			at = sooner(at, l.until)
		}
	}
	wants := func(k int, when effects.Time) { // A line that is used at an instant. If it is not free, what frees it tells.
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

// Due goes on where time has come.
func (r *Registrar) Due(v *env.Env, s *store.Store, ref kernel.Ref) {
	i := int(ref.Subject.Slot())
	r.rows[i].timer = 0
	r.pump(v, s, i)
}

// use says whether a line can be used now, and sees that it can be later.
func (r *Registrar) use(v *env.Env, i, k int) bool {
	l := &r.rows[i].line[k]
	ch, to := r.end(i, k)
	if l.conn != 0 && l.owed == 0 && l.to != to { // The directory listens elsewhere now.
		l.close(v, &r.pace)
	}
	if l.mayOpen(v.Now) {
		l.to = to
		l.open(v, r.ref(i, k), ch, 0, to)
	}
	return l.ready(1)
}

// end is where a line leads.
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
