package registrar

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/protocol"
)

// register makes the worker known.
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

// incarnation is what a directory is told of it: one of LMCache's nothing.
func (r *Registrar) incarnation(i int) protocol.UUID {
	if r.cfg.Directories[i].Plain {
		return protocol.UUID{}
	}
	return protocol.UUID(r.cfg.Worker.Incarnation)
}

// registered takes the answer to a registration. Where it is refused it is tried again later.
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
		d.sync.stage = syncWanted // It has forgotten what was told before.
	}
}

// beatEvery is the time between two heartbeats to a directory: less than what is configured, if it would forget the
// worker in between. Otherwise its chunks would be found for a while after each heartbeat and then not.
func (r *Registrar) beatEvery(d *row) effects.Duration {
	if d.silence == 0 {
		return r.cfg.Beat
	}
	return min(r.cfg.Beat, max(d.silence/protocol.HeartbeatsWithin, r.cfg.BackoffMin))
}

// span is a time that a directory says.
func span(ns uint64) effects.Duration { return effects.Duration(min(ns, 1<<62)) }

// beats says whether a directory gets heartbeats: one of LMCache's only where it says.
func (r *Registrar) beats(i int) bool {
	return r.rows[i].beats != effects.Addr{} || !r.cfg.Directories[i].Plain
}

// beat says that the worker lives. Where nothing was told since the last heartbeat, and nothing is to be, something
// true is told before: who missed the last operation learns so by the number of this one.
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

// beaten takes the answer to a heartbeat. One that is refused is not of who is known there: the worker registers anew.
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
			// Syncs that it forgot with the worker did not fail: the next one need not wait for longer than any.
			d.sync.fails = 0
			d.sync.next = min(d.sync.next, d.sync.began.Add(r.cfg.SyncEvery))
		}
	}
}

// holdsBack says whether nothing that happens can be told now: the number from which on a sync does not tell has been
// said, and nobody knows yet whether it was heard.
func (d *row) holdsBack() bool { return d.sync.stage == syncAsked }

// report tells what came and went, some of it at a time. If the journal does not know all of that any more, the
// directory is told all that there is.
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

// post hands operations over, under the next numbers. They are told when that has been done.
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

// deregister says that the worker is gone, when nothing is under way that could make it known again.
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

// goes ends all that there is with a directory.
func (r *Registrar) goes(v *env.Env, d *row) {
	d.phase, d.sync.stage, d.asked, d.posted = gone, noSync, nothing, noPosting
	for k := range d.line {
		d.line[k].close(v, &r.pace)
	}
}
