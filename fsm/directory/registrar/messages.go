package registrar

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/protocol"
)

// sendRegister sends a registration, if the request line is free.
func (r *Registrar) sendRegister(v *env.Env, i int) {
	d := &r.directories[i]
	if d.request != requestNone || v.Now < d.conns[requestConn].openAfter || !r.useConn(v, i, requestConn) {
		return
	}
	d.request, d.registerSent = requestRegister, true
	m := r.makeRegisterMsg(i)
	d.conns[requestConn].sendRequest(v, r.connRef(i, requestConn), m.Append(v.Out.Arena()), r.cfg.RequestTimeout)
}

func (r *Registrar) makeRegisterMsg(i int) protocol.RegisterMsg {
	w := &r.cfg.Worker
	return protocol.RegisterMsg{
		Worker: r.cfg.Worker.wireWorker(), Listener: r.cfg.Worker.wireListener(), PeerInitURL: []byte(w.URL),
		Incarnation: r.incarnationFor(i),
	}
}

func (w *Worker) wireWorker() protocol.Worker {
	return protocol.Worker{InstanceID: []byte(w.Instance), WorkerID: w.Rank}
}

func (w *Worker) wireListener() protocol.Listener {
	return protocol.Listener{IP: []byte(w.IP), Port: w.Port}
}

// incarnationFor returns the incarnation for messages to a directory: none for a plain directory.
func (r *Registrar) incarnationFor(i int) protocol.UUID {
	if r.cfg.Directories[i].Plain {
		return protocol.UUID{}
	}
	return protocol.UUID(r.cfg.Worker.Incarnation)
}

// handleRegisterReply handles the reply to a registration. A refused registration is repeated after a backoff.
func (r *Registrar) handleRegisterReply(v *env.Env, i int, body []byte) {
	d := &r.directories[i]
	var m protocol.RegisterRetMsg
	if m.Decode(body, &r.cfg.Wire) != nil {
		if r.handleRefusal(v, d, requestConn, body) {
			d.conns[requestConn].recordFailure(v.Now, &r.pace)
		}
		return
	}
	d.conns[requestConn].failures = 0
	if d.phase != phaseAbsent {
		return
	}
	d.heartbeatAddr = effects.Addr{}
	if at, err := protocol.ParseEndpoint(string(m.HeartbeatURL)); err == nil {
		d.heartbeatAddr = effects.Addr{Host: at.Host, Port: at.Port}
	}
	d.silence = durationOf(m.SilenceNS)
	d.phase, d.unansweredHeartbeats, d.heartbeatAt, d.reportSent = phaseKnown, 0, v.Now.Add(r.heartbeatInterval(d)), false
	d.recordFailure(effects.OK, "")
	if r.cfg.Directories[i].Plain && d.hasReported() {
		d.sync.stage = syncWanted // The controller has forgotten all earlier reports.
	}
}

// heartbeatInterval returns the time between two heartbeats to a directory. It is less than the configured time if the
// directory would drop the worker in between; otherwise lookups would find the worker's chunks for a while after each
// heartbeat and then miss them.
func (r *Registrar) heartbeatInterval(d *directoryState) effects.Duration {
	if d.silence == 0 {
		return r.cfg.HeartbeatEvery
	}
	return min(r.cfg.HeartbeatEvery, max(d.silence/protocol.HeartbeatsPerTimeout, r.cfg.BackoffMin))
}

// durationOf converts a duration that a directory states.
func durationOf(ns uint64) effects.Duration { return effects.Duration(min(ns, 1<<62)) }

// wantsHeartbeats reports whether a directory receives heartbeats. A plain directory does so only if its reply to the
// registration named an address.
func (r *Registrar) wantsHeartbeats(i int) bool {
	return r.directories[i].heartbeatAddr != effects.Addr{} || !r.cfg.Directories[i].Plain
}

// sendHeartbeat sends a heartbeat if it is due. If nothing was reported since the last heartbeat and nothing is
// pending, a harmless operation is sent before: the eviction of a chunk that does not exist. Its number shows a
// directory that missed the previous operation that there is a gap.
func (r *Registrar) sendHeartbeat(v *env.Env, s *store.Store, i int) {
	d := &r.directories[i]
	if v.Now < d.heartbeatAt || !r.wantsHeartbeats(i) || !r.useConn(v, i, heartbeatConn) {
		return
	}
	idle := !d.reportSent && d.sync.stage == noSync && d.posting == postingNone && s.LastChange() == d.reportedChange
	if idle && !r.cfg.Directories[i].Plain && r.useConn(v, i, feedConn) {
		r.ops = append(r.ops[:0], protocol.KVOperation{Type: protocol.OpEvict, Key: protocol.ChunkHash{Bits: r.unusedHash}})
		r.postOperations(v, i, d.reportedChange)
	}
	d.heartbeatAt, d.reportSent = v.Now.Add(r.heartbeatInterval(d)), false
	m := protocol.HeartbeatMsg(r.makeRegisterMsg(i))
	d.conns[heartbeatConn].sendRequest(v, r.connRef(i, heartbeatConn), m.Append(v.Out.Arena()), r.cfg.RequestTimeout)
}

// handleHeartbeatReply handles the reply to a heartbeat. A refusal means that the directory knows another process by
// this name, so the worker registers again.
func (r *Registrar) handleHeartbeatReply(v *env.Env, d *directoryState, body []byte) {
	var m protocol.HeartbeatRetMsg
	if m.Decode(body, &r.cfg.Wire) != nil {
		if r.handleRefusal(v, d, heartbeatConn, body) && d.phase == phaseKnown {
			d.phase = phaseAbsent
			d.conns[requestConn].openAfter = max(d.conns[requestConn].openAfter, v.Now.Add(r.pace.retryDelay(0)))
		}
		return
	}
	d.unansweredHeartbeats, d.conns[heartbeatConn].failures, d.silence = 0, 0, durationOf(m.SilenceNS)
	d.heartbeatAt = min(d.heartbeatAt, v.Now.Add(r.heartbeatInterval(d)))
	for _, c := range m.Commands {
		if c.Type != protocol.CommandFullSync || d.phase != phaseKnown {
			continue
		}
		if d.sync.stage == noSync {
			d.sync.stage = syncWanted
		}
		if string(c.Reason) == protocol.ReasonForgotten {
			// Syncs that the directory forgot together with the worker did not fail, so the next sync need not wait
			// longer than usual.
			d.sync.failures = 0
			d.sync.earliestNext = min(d.sync.earliestNext, d.sync.beganAt.Add(r.cfg.SyncEvery))
		}
	}
}

// mustWait reports whether operations must wait: a request to begin a sync, which states the number of the first
// operation after the sync, is in flight, and it is not known whether the directory accepts the sync.
func (d *directoryState) mustWait() bool { return d.sync.stage == syncRequested }

// sendReport posts the next operations. If the journal does not contain all changes since the last report, a full sync
// is started instead.
func (r *Registrar) sendReport(v *env.Env, s *store.Store, i int) {
	d := &r.directories[i]
	behind := s.LastChange() - d.reportedChange
	if behind == 0 {
		d.reportAt = 0
		return
	}
	if d.reportAt == 0 {
		d.reportAt = v.Now.Add(r.cfg.ReportDelay)
	}
	if d.mustWait() || d.posting != postingNone || behind < uint64(r.cfg.ReportOperations) && v.Now < d.reportAt {
		return
	}
	if cap(r.changes) < r.cfg.ReportOperations {
		r.changes = make([]store.Change, 0, r.cfg.ReportOperations)
	}
	var complete bool
	if r.changes, complete = s.ChangesAfter(d.reportedChange, r.changes[:0:r.cfg.ReportOperations]); !complete {
		if d.sync.stage == noSync {
			d.sync.stage = syncWanted
		}
		d.reportAt = 0
		return
	}
	if !r.useConn(v, i, feedConn) {
		return
	}
	r.ops = r.ops[:0]
	for n := range r.changes {
		c := &r.changes[n]
		if hash, ok := protocol.ChunkHashOfKey(c.Key); ok {
			op := protocol.KVOperation{Key: hash}
			if c.Removed {
				op.Type = protocol.OpEvict
			}
			r.ops = append(r.ops, op)
		}
	}
	read := d.reportedChange + uint64(len(r.changes))
	if d.reportAt = 0; len(r.ops) == 0 {
		d.reportedChange = read
		return
	}
	r.postOperations(v, i, read)
}

// postOperations posts operations with the next numbers. They count as reported when the message has been handed over.
func (r *Registrar) postOperations(v *env.Env, i int, read uint64) {
	d := &r.directories[i]
	for n := range r.ops {
		r.ops[n].Seq = d.nextOperation + uint64(n)
	}
	d.posting, d.afterPosting = postingOperations, reportProgress{nextOperation: d.nextOperation + uint64(len(r.ops)), reportedChange: read}
	m := protocol.BatchedKVOperationMsg{
		Worker: r.cfg.Worker.wireWorker(), Location: []byte(r.cfg.Worker.Location), Operations: r.ops,
		Incarnation: r.incarnationFor(i),
	}
	d.conns[feedConn].postMessage(v, r.connRef(i, feedConn), m.Append(v.Out.Arena()))
}

// sendDeregister posts a deregistration, when nothing is in flight that could make the worker known again.
func (r *Registrar) sendDeregister(v *env.Env, i int) {
	d := &r.directories[i]
	if d.conns[requestConn].outstanding > 0 || d.conns[heartbeatConn].outstanding > 0 || d.posting != postingNone || !r.useConn(v, i,
		feedConn) {
		return
	}
	d.posting = postingDeregister
	m := protocol.DeRegisterMsg{Worker: r.cfg.Worker.wireWorker(), Listener: r.cfg.Worker.wireListener(),
		Incarnation: r.incarnationFor(i)}
	d.conns[feedConn].postMessage(v, r.connRef(i, feedConn), m.Append(v.Out.Arena()))
}

// stopDirectory ends all communication with a directory.
func (r *Registrar) stopDirectory(v *env.Env, d *directoryState) {
	d.phase, d.sync.stage, d.request, d.posting = phaseStopped, noSync, requestNone, postingNone
	for k := range d.conns {
		d.conns[k].closeConn(v, &r.pace)
	}
}
