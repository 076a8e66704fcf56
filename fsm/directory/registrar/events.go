package registrar

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/protocol"
)

// Step handles a completion or the loss of a connection.
func (r *Registrar) Step(v *env.Env, s *store.Store, ref kernel.Ref, ev effects.Event) {
	i, k := int(ref.Subject.Slot()), int(ref.Kind)
	d := &r.directories[i]
	l := &d.conns[k]
	switch x := ev.(type) {
	case *effects.Opened:
		if !l.onOpened(v, ref, x, &r.pace) {
			d.recordFailure(x.Code, "")
			r.abandonInFlight(i, k)
		} else if d.phase == phaseStopped {
			l.closeConn(v, &r.pace)
		}
	case *effects.Replied:
		if l.completeOne() {
			r.handleReply(v, i, k, x.Body)
		}
	case *effects.Unanswered:
		if l.completeOne() {
			r.onConnLost(v, i, k, x.Code)
		}
	case *effects.SendDone:
		if !l.completeOne() {
			break
		}
		if x.Code == effects.OK {
			r.onPosted(v, d)
		} else {
			r.onConnLost(v, i, k, x.Code)
		}
	case *effects.ConnLost:
		r.onConnLost(v, i, k, effects.PeerLost)
	default:
		kernel.PanicUnexpected("the registrar")
	}
	r.pumpDirectory(v, s, i)
}

// onConnLost closes a connection, and ends everything that was in flight on it.
func (r *Registrar) onConnLost(v *env.Env, i, k int, code effects.Code) {
	d := &r.directories[i]
	d.conns[k].closeConn(v, &r.pace)
	d.recordFailure(code, "")
	r.abandonInFlight(i, k)
}

// abandonInFlight ends everything that was in flight on a lost line.
func (r *Registrar) abandonInFlight(i, k int) {
	d, plain := &r.directories[i], r.cfg.Directories[i].Plain
	switch k {
	case requestConn:
		request := d.request
		if d.request = requestNone; request == requestSyncBegin {
			d.sync.stage = syncWanted
		}
		if plain && d.phase == phaseKnown && !r.wantsHeartbeats(i) {
			d.phase = phaseAbsent // No later message would show that the controller was restarted.
		}
	case feedConn:
		d.posting = postingNone
		if d.phase == phaseKnown && (d.sync.stage > syncRequested || plain && d.hasReported() && d.sync.stage == noSync) {
			// Batches of the sync may arrive after messages that are sent from now on.
			d.sync.stage = syncWanted
		}
	case heartbeatConn:
		if d.unansweredHeartbeats++; d.unansweredHeartbeats >= r.cfg.HeartbeatsLost && d.phase == phaseKnown {
			d.phase = phaseAbsent
		}
	}
}

// recordFailure records the latest failure for operators.
func (d *directoryState) recordFailure(code effects.Code, reason string) {
	d.lastCode, d.lastReason = code, reason
}

// handleReply handles a reply. A reply that does not match the request is treated like a lost reply.
func (r *Registrar) handleReply(v *env.Env, i, k int, body []byte) {
	d := &r.directories[i]
	if k == heartbeatConn {
		r.handleHeartbeatReply(v, d, body)
		return
	}
	request := d.request
	d.request = requestNone
	switch request {
	case requestRegister:
		r.handleRegisterReply(v, i, body)
	case requestSyncBegin:
		r.handleSyncBeginReply(v, d, body)
	case requestStatus:
		r.handleSyncStatusReply(v, d, body)
	case requestNone:
	}
}

// handleRefusal handles a reply that does not match the request. It returns true for an ErrorMsg of the directory. For
// anything else it closes the connection and returns false.
func (r *Registrar) handleRefusal(v *env.Env, d *directoryState, k int, body []byte) bool {
	var m protocol.ErrorMsg
	if m.Decode(body, &r.cfg.Wire) == nil {
		d.recordFailure(effects.Refused, effects.SanitizeText(m.Error))
		return true
	}
	d.conns[k].closeConn(v, &r.pace)
	d.recordFailure(effects.Malformed, "")
	return false
}

// onPosted handles the completion of a message on the feed. The message may be lost nevertheless.
func (r *Registrar) onPosted(v *env.Env, d *directoryState) {
	kind := d.posting
	d.posting, d.conns[feedConn].failures = postingNone, 0
	switch kind {
	case postingOperations:
		d.reportSent = d.reportSent || d.afterPosting.reportedChange != d.reportedChange
		d.nextOperation, d.reportedChange = d.afterPosting.nextOperation, d.afterPosting.reportedChange
	case postingSyncBatch:
		r.onBatchPosted(v, d)
	case postingSyncEnd:
		d.sync.stage, d.sync.nextAt = syncSent, v.Now.Add(r.cfg.SyncPoll)
	case postingDeregister:
		r.stopDirectory(v, d)
	case postingNone:
	}
}
