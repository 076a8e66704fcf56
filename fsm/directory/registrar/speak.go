package registrar

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/protocol"
)

// register sends a registration, if the request line is free.
func (r *Registrar) register(v *env.Env, i int) {
	d := &r.rows[i]
	if d.asked != nothing || v.Now < d.line[questions].again || !r.use(v, i, questions) {
		return
	}
	d.asked, d.met = registration, true
	m := r.introduction(i)
	d.line[questions].send(v, r.ref(i, questions), m.Append(v.Out.Arena()), r.cfg.Patience)
}

func (r *Registrar) introduction(i int) protocol.RegisterMsg {
	w := &r.cfg.Worker
	return protocol.RegisterMsg{
		Worker: r.cfg.Worker.name(), Listener: r.cfg.Worker.listener(), PeerInitURL: []byte(w.URL),
		Incarnation: r.incarnation(i),
	}
}

func (w *Worker) name() protocol.Worker {
	return protocol.Worker{InstanceID: []byte(w.Instance), WorkerID: w.Rank}
}

func (w *Worker) listener() protocol.Listener {
	return protocol.Listener{IP: []byte(w.IP), Port: w.Port}
}

// incarnation returns the incarnation for messages to a directory: none for a plain directory.
func (r *Registrar) incarnation(i int) protocol.UUID {
	if r.cfg.Directories[i].Plain {
		return protocol.UUID{}
	}
	return protocol.UUID(r.cfg.Worker.Incarnation)
}

// registered handles the reply to a registration. A refused registration is repeated after a backoff.
func (r *Registrar) registered(v *env.Env, i int, body []byte) {
	d := &r.rows[i]
	var m protocol.RegisterRetMsg
	if m.Decode(body, &r.cfg.Wire) != nil {
		if r.refused(v, d, questions, body) {
			d.line[questions].failed(v.Now, &r.pace)
		}
		return
	}
	d.line[questions].fails = 0
	if d.phase != absent {
		return
	}
	d.beats = effects.Addr{}
	if at, err := protocol.ParseEndpoint(string(m.HeartbeatURL)); err == nil {
		d.beats = effects.Addr{Host: at.Host, Port: at.Port}
	}
	d.silence = span(m.SilenceNS)
	d.phase, d.unheard, d.beatAt, d.reminded = known, 0, v.Now.Add(r.beatEvery(d)), false
	d.failed(effects.OK, "")
	if r.cfg.Directories[i].Plain && d.spoken() {
		d.sync.stage = syncWanted // The controller has forgotten all earlier reports.
	}
}

// beatEvery returns the time between two heartbeats to a directory. It is less than the configured time if the
// directory would drop the worker in between; otherwise lookups would find the worker's chunks for a while after each
// heartbeat and then miss them.
func (r *Registrar) beatEvery(d *row) effects.Duration {
	if d.silence == 0 {
		return r.cfg.Beat
	}
	return min(r.cfg.Beat, max(d.silence/protocol.HeartbeatsWithin, r.cfg.BackoffMin))
}

// span converts a duration that a directory states.
func span(ns uint64) effects.Duration { return effects.Duration(min(ns, 1<<62)) }

// beats reports whether a directory receives heartbeats. A plain directory does so only if its reply to the
// registration named an address.
func (r *Registrar) beats(i int) bool {
	return r.rows[i].beats != effects.Addr{} || !r.cfg.Directories[i].Plain
}

// beat sends a heartbeat if it is due. If nothing was reported since the last heartbeat and nothing is pending, a
// harmless operation is sent before: the eviction of a chunk that does not exist. Its number shows a directory that
// missed the previous operation that there is a gap.
func (r *Registrar) beat(v *env.Env, s *store.Store, i int) {
	d := &r.rows[i]
	if v.Now < d.beatAt || !r.beats(i) || !r.use(v, i, heartbeat) {
		return
	}
	idle := !d.reminded && d.sync.stage == noSync && d.posted == noPosting && s.Changed() == d.read
	if idle && !r.cfg.Directories[i].Plain && r.use(v, i, feed) {
		r.ops = append(r.ops[:0], protocol.KVOperation{Type: protocol.OpEvict, Key: protocol.ChunkHash{Bits: r.nobody}})
		r.post(v, i, d.read)
	}
	d.beatAt, d.reminded = v.Now.Add(r.beatEvery(d)), false
	m := protocol.HeartbeatMsg(r.introduction(i))
	d.line[heartbeat].send(v, r.ref(i, heartbeat), m.Append(v.Out.Arena()), r.cfg.Patience)
}

// beaten handles the reply to a heartbeat. A refusal means that the directory knows another process by this name, so
// the worker registers again.
func (r *Registrar) beaten(v *env.Env, d *row, body []byte) {
	var m protocol.HeartbeatRetMsg
	if m.Decode(body, &r.cfg.Wire) != nil {
		if r.refused(v, d, heartbeat, body) && d.phase == known {
			d.phase = absent
			d.line[questions].again = max(d.line[questions].again, v.Now.Add(r.pace.delay(0)))
		}
		return
	}
	d.unheard, d.line[heartbeat].fails, d.silence = 0, 0, span(m.SilenceNS)
	d.beatAt = min(d.beatAt, v.Now.Add(r.beatEvery(d)))
	for _, c := range m.Commands {
		if c.Type != protocol.CommandFullSync || d.phase != known {
			continue
		}
		if d.sync.stage == noSync {
			d.sync.stage = syncWanted
		}
		if string(c.Reason) == protocol.ReasonForgotten {
			// Syncs that the directory forgot together with the worker did not fail, so the next sync need not wait
			// longer than usual.
			d.sync.fails = 0
			d.sync.next = min(d.sync.next, d.sync.began.Add(r.cfg.SyncEvery))
		}
	}
}

// holdsBack reports whether operations must wait: a request to begin a sync, which states the number of the first
// operation after the sync, is in flight, and it is not known whether the directory accepts the sync.
func (d *row) holdsBack() bool { return d.sync.stage == syncAsked }

// report posts the next operations. If the journal does not contain all changes since the last report, a full sync is
// started instead.
func (r *Registrar) report(v *env.Env, s *store.Store, i int) {
	d := &r.rows[i]
	behind := s.Changed() - d.read
	if behind == 0 {
		d.reportAt = 0
		return
	}
	if d.reportAt == 0 {
		d.reportAt = v.Now.Add(r.cfg.Report)
	}
	if d.holdsBack() || d.posted != noPosting || behind < uint64(r.cfg.Operations) && v.Now < d.reportAt {
		return
	}
	if cap(r.changes) < r.cfg.Operations {
		r.changes = make([]store.Change, 0, r.cfg.Operations)
	}
	var whole bool
	if r.changes, whole = s.Journal(d.read, r.changes[:0:r.cfg.Operations]); !whole {
		if d.sync.stage == noSync {
			d.sync.stage = syncWanted
		}
		d.reportAt = 0
		return
	}
	if !r.use(v, i, feed) {
		return
	}
	r.ops = r.ops[:0]
	for n := range r.changes {
		c := &r.changes[n]
		if hash, ok := protocol.ChunkHashOfKey(c.Key); ok {
			op := protocol.KVOperation{Key: hash}
			if c.Gone {
				op.Type = protocol.OpEvict
			}
			r.ops = append(r.ops, op)
		}
	}
	read := d.read + uint64(len(r.changes))
	if d.reportAt = 0; len(r.ops) == 0 {
		d.read = read
		return
	}
	r.post(v, i, read)
}

// post posts operations with the next numbers. They count as reported when the message has been handed over.
func (r *Registrar) post(v *env.Env, i int, read uint64) {
	d := &r.rows[i]
	for n := range r.ops {
		r.ops[n].Seq = d.next + uint64(n)
	}
	d.posted, d.then = operations, told{next: d.next + uint64(len(r.ops)), read: read}
	m := protocol.BatchedKVOperationMsg{
		Worker: r.cfg.Worker.name(), Location: []byte(r.cfg.Worker.Location), Operations: r.ops,
		Incarnation: r.incarnation(i),
	}
	d.line[feed].post(v, r.ref(i, feed), m.Append(v.Out.Arena()))
}

// deregister posts a deregistration, when nothing is in flight that could make the worker known again.
func (r *Registrar) deregister(v *env.Env, i int) {
	d := &r.rows[i]
	if d.line[questions].owed > 0 || d.line[heartbeat].owed > 0 || d.posted != noPosting || !r.use(v, i, feed) {
		return
	}
	d.posted = deregistration
	m := protocol.DeRegisterMsg{Worker: r.cfg.Worker.name(), Listener: r.cfg.Worker.listener(),
		Incarnation: r.incarnation(i)}
	d.line[feed].post(v, r.ref(i, feed), m.Append(v.Out.Arena()))
}

// goes ends all communication with a directory.
func (r *Registrar) goes(v *env.Env, d *row) {
	d.phase, d.sync.stage, d.asked, d.posted = gone, noSync, nothing, noPosting
	for k := range d.line {
		d.line[k].close(v, &r.pace)
	}
}
