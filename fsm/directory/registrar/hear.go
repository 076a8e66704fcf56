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
	d := &r.rows[i]
	l := &d.line[k]
	switch x := ev.(type) {
	case *effects.Opened:
		if !l.opened(v, ref, x, &r.pace) {
			d.failed(x.Code, "")
			r.missed(i, k)
		} else if d.phase == gone {
			l.close(v, &r.pace)
		}
	case *effects.Replied:
		if l.done() {
			r.replied(v, i, k, x.Body)
		}
	case *effects.Unanswered:
		if l.done() {
			r.lost(v, i, k, x.Code)
		}
	case *effects.SendDone:
		if !l.done() {
			break
		}
		if x.Code == effects.OK {
			r.handed(v, d)
		} else {
			r.lost(v, i, k, x.Code)
		}
	case *effects.ConnLost:
		r.lost(v, i, k, effects.PeerLost)
	default:
		kernel.Foreign("who makes workers known")
	}
	r.pump(v, s, i)
}

// lost closes a connection, and ends everything that was in flight on it.
func (r *Registrar) lost(v *env.Env, i, k int, code effects.Code) {
	d := &r.rows[i]
	d.line[k].close(v, &r.pace)
	d.failed(code, "")
	r.missed(i, k)
}

// missed ends everything that was in flight on a lost line.
func (r *Registrar) missed(i, k int) {
	d, plain := &r.rows[i], r.cfg.Directories[i].Plain
	switch k {
	case questions:
		was := d.asked
		if d.asked = nothing; was == syncBegin {
			d.sync.stage = syncWanted
		}
		if plain && d.phase == known && !r.beats(i) {
			d.phase = absent // No later message would show that the controller was restarted.
		}
	case feed:
		d.posted = noPosting
		if d.phase == known && (d.sync.stage > syncAsked || plain && d.spoken() && d.sync.stage == noSync) {
			// Batches of the sync may arrive after messages that are sent from now on.
			d.sync.stage = syncWanted
		}
	case heartbeat:
		if d.unheard++; d.unheard >= r.cfg.BeatsLost && d.phase == known {
			d.phase = absent
		}
	}
}

// failed records the latest failure for operators.
func (d *row) failed(code effects.Code, said string) { d.code, d.said = code, said }

// replied handles a reply. A reply that does not match the request is treated like a lost reply.
func (r *Registrar) replied(v *env.Env, i, k int, body []byte) {
	d := &r.rows[i]
	if k == heartbeat {
		r.beaten(v, d, body)
		return
	}
	was := d.asked
	d.asked = nothing
	switch was {
	case registration:
		r.registered(v, i, body)
	case syncBegin:
		r.syncBegun(v, d, body)
	case syncStatus:
		r.syncStands(v, d, body)
	case nothing:
	}
}

// refused handles a reply that does not match the request. It returns true for an ErrorMsg of the directory. For
// anything else it closes the connection and returns false.
func (r *Registrar) refused(v *env.Env, d *row, k int, body []byte) bool {
	var m protocol.ErrorMsg
	if m.Decode(body, &r.cfg.Wire) == nil {
		d.failed(effects.Refused, effects.Words(m.Error))
		return true
	}
	d.line[k].close(v, &r.pace)
	d.failed(effects.Malformed, "")
	return false
}

// handed handles the completion of a message on the feed. The message may be lost nevertheless.
func (r *Registrar) handed(v *env.Env, d *row) {
	was := d.posted
	d.posted, d.line[feed].fails = noPosting, 0
	switch was {
	case operations:
		d.reminded = d.reminded || d.then.read != d.read
		d.next, d.read = d.then.next, d.then.read
	case syncBatch:
		r.batchHanded(v, d)
	case syncEnd:
		d.sync.stage, d.sync.at = syncEnded, v.Now.Add(r.cfg.SyncPoll)
	case deregistration:
		r.goes(v, d)
	case noPosting:
	}
}
