package receiver

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/memory"
	"github.com/kvferry/kvferry/fsm/store"
	"github.com/kvferry/kvferry/fsm/table"
)

// A batch is what one grant is for: a fill for each of its pages. The grant is a sender's, who
// pushes, or our own, for what we read from an offer.
type batch struct {
	live      bool `snap:"life"`
	reading   bool // our own; see read.go
	revoking  bool
	id        effects.GrantID
	class     int
	peer      effects.Incarnation // zero: a plain sender
	operation uint64
	request   uint64        // hash of the request's id
	what      uint64        // hash of the keys that it is for, in order, and of the last tokens
	fills     []store.Entry // by the page's position in the grant
	reply     []byte        // what was answered, for a retry of the same operation
	ends      effects.Time
	timer     kernel.TimerID `snap:"set"`
	pull      pull
}

// begin records a grant just made for the spots of the message.
func (r *Receiver) begin(v *env.Env, id effects.GrantID, class int, peer effects.Incarnation, operation, request uint64) *batch {
	b := &r.batches[memory.SlotOf(id)]
	*b = batch{
		live: true, id: id, class: class, peer: peer, operation: operation, request: request,
		fills: b.fills[:0], reply: b.reply[:0], ends: v.Now.Add(r.cfg.Lease), pull: b.pull.emptied(),
	}
	until := b.ends
	if peer == (effects.Incarnation{}) {
		// A plain sender on a plane nobody watches: its writes may land until the
		// stated residual has passed, and nothing will ever tell (rule M5).
		until = until.Add(r.cfg.Residual)
	}
	v.Timers.Set(&b.timer, until, timerRef(timerGrant, slotHandle(id)))
	if operation != 0 {
		r.byGrant.Add(operationHash(peer, operation), slotHandle(id))
	}
	return b
}

func slotHandle(id effects.GrantID) table.Handle { return table.Handle(memory.SlotOf(id) + 1) }

func operationHash(peer effects.Incarnation, operation uint64) uint64 {
	return table.Hash(operation, peer[:])
}

func (r *Receiver) find(id effects.GrantID) *batch {
	slot := memory.SlotOf(id)
	if int(slot) >= len(r.batches) || !r.batches[slot].live || r.batches[slot].id != id {
		return nil
	}
	return &r.batches[slot]
}

// repeated finds the live grant of an operation that is asked for again.
func (r *Receiver) repeated(peer effects.Incarnation, operation uint64) *batch {
	for p := r.byGrant.Seek(operationHash(peer, operation)); p.Found(); p = r.byGrant.Next(p) {
		if b := &r.batches[p.Handle().Slot()]; b.peer == peer && b.operation == operation {
			return b
		}
	}
	return nil
}

// Unknown answers what landed under no grant that we gave for landing.
func Unknown(v *env.Env, ev *effects.Landed) {
	v.Out.Mark(MarkLandedUnknown)
	v.Out.Confirm(ev.Landing, effects.Withdrawn)
}

// OnLanded takes the pages that a fenced plane says are whole. Its Confirm tells
// the sender that they are readable, not only that they were stored.
func (r *Receiver) OnLanded(v *env.Env, ev *effects.Landed) {
	b := r.find(ev.Grant)
	if b == nil || b.peer != ev.Peer || b.reading {
		Unknown(v, ev)
		return
	}
	code := effects.OK
	if !ev.Complete {
		v.Out.Mark(MarkLandedPartly)
		code = effects.Faulted
	}
	for _, page := range ev.Pages {
		if !r.land(v, b, page) {
			code = effects.Withdrawn // OK would say that all of it was taken.
		}
	}
	v.Out.Confirm(ev.Landing, code)
	switch {
	case v.Pools.OpenPages(b.id) == 0 && !b.revoking:
		r.end(v, b)
	case !b.revoking:
		// The push is over, and with it the grant on what it left out.
		r.revoke(v, b)
	}
}

// land makes one page readable, and says whether it was still under the grant.
func (r *Receiver) land(v *env.Env, b *batch, page effects.Page) bool {
	position, ok := v.Pools.Land(b.id, page)
	if !ok {
		v.Out.Mark(MarkLandedLate)
		return false
	}
	// The length granted is the chunk's; a plane may know only the page.
	page = v.Pools.Pages(b.id)[position]
	h := b.fills[position]
	took := r.Store.EndFill(h, page, true)
	if !took {
		v.Out.Mark(MarkFillLostRace)
		v.Pool.Unref(page)
	}
	hash := r.Store.HashOf(h)
	// A rank that drains keeps nothing for readers, who are refused already; nor does an abandoned request have any.
	if !r.draining && !r.abandons.has(v.Now, b.request) {
		r.claim(v, h, b.class, b.request)
	}
	r.Store.Settle(h, v)
	if took {
		v.Out.Observe(effects.Observe{Fact: effects.FactReady, ID: hash, Peer: b.peer})
	}
	return true
}

// revoke takes a grant back: its pages are in quarantine until the driver proves
// that nobody can touch them.
func (r *Receiver) revoke(v *env.Env, b *batch) {
	v.Timers.Stop(&b.timer)
	b.revoking = true
	v.Pools.Quarantine(b.id)
	v.Out.Revoke(b.id)
}

// takeBack ends a batch for a reason of ours.
func (r *Receiver) takeBack(v *env.Env, b *batch, code effects.Code) {
	if b.reading {
		r.stopReading(v, b, code)
		return
	}
	r.revoke(v, b)
}

// onGrantEnds handles the end of a grant's time.
func (r *Receiver) onGrantEnds(v *env.Env, slot int32) {
	b := &r.batches[slot]
	b.timer = 0
	v.Out.Mark(MarkGrantExpired)
	if b.reading {
		r.stopReading(v, b, effects.Expired)
		return
	}
	if b.peer == (effects.Incarnation{}) {
		r.end(v, b)
		return
	}
	r.revoke(v, b)
}

// OnRevoked ends the quarantine.
func (r *Receiver) OnRevoked(v *env.Env, ev *effects.Revoked) {
	if b := r.find(ev.Grant); b != nil && b.revoking && !b.reading {
		r.end(v, b)
	}
}

// OnPeerLost takes back, on fenced planes, what a peer that is gone was granted: it
// cannot push any more. On leased planes only time and proof end a grant (rule M4).
func (r *Receiver) OnPeerLost(v *env.Env, peer effects.Incarnation) {
	if r.cfg.Leased || peer == (effects.Incarnation{}) {
		return
	}
	for slot := range r.batches {
		if b := &r.batches[slot]; b.live && !b.revoking && !b.reading && b.peer == peer {
			v.Out.Mark(MarkWriterLost)
			r.revoke(v, b)
		}
	}
}

// end forgets a grant whose writer is quiet. What never landed is lost.
func (r *Receiver) end(v *env.Env, b *batch) {
	v.Timers.Stop(&b.timer)
	r.clear(v, b)
	v.Pools.End(b.id)
	if b.operation != 0 {
		r.byGrant.Remove(operationHash(b.peer, b.operation), slotHandle(b.id))
	}
	b.fills, b.reply = table.Shed(b.fills), table.ShedBytes(b.reply)
	b.live = false
}

// clear takes the pages of a grant back whose writer is quiet.
func (r *Receiver) clear(v *env.Env, b *batch) {
	for position, h := range b.fills {
		if v.Pools.Under(b.id, position) {
			hash := r.Store.HashOf(h)
			r.Store.EndFill(h, effects.Page{}, false)
			r.Store.Settle(h, v)
			v.Out.Observe(effects.Observe{Fact: effects.FactFillLost, Code: effects.Withdrawn, ID: hash, Peer: b.peer})
			r.Store.Lose(hash)
		}
	}
	if freed := v.Pools.Clear(b.id); freed > 0 {
		v.Out.Observe(effects.Observe{Fact: effects.FactReclaimed, Count: freed, ID: uint64(b.id), Peer: b.peer})
	}
}

// commit handles the initiator's word that all its writes are settled and whole.
// Said twice, it is answered twice the same.
func (r *Receiver) commit(v *env.Env, peer effects.Incarnation, id effects.GrantID) bool {
	b := r.find(id)
	if b == nil {
		r.commits.expire(v.Now)
		again := r.commits.find(peer, uint64(id), 0) != nil
		if again {
			v.Out.Mark(MarkCommitRepeated)
		}
		return again
	}
	if b.peer != peer || b.reading {
		return false // Nobody but us says when a read is whole.
	}
	if b.revoking || !r.cfg.Leased || v.Now > b.ends {
		v.Out.Mark(MarkCommitLate)
		return false
	}
	// The grant's own list shrinks while pages land: walk a copy.
	r.pages = append(r.pages[:0], v.Pools.Pages(id)...)
	for _, page := range r.pages {
		r.land(v, b, page)
	}
	r.commits.add(tombstone{
		class: b.class, peer: peer, operation: uint64(id), done: true, said: v.Now, over: v.Now.Add(r.cfg.ClaimTTL),
	})
	r.end(v, b)
	return true
}

// abort handles the initiator's word that it will not write any more.
func (r *Receiver) abort(v *env.Env, peer effects.Incarnation, id effects.GrantID) {
	b := r.find(id)
	if b == nil || b.peer != peer || b.reading {
		return
	}
	v.Out.Mark(MarkGrantAborted)
	if r.cfg.Leased {
		// Its word that the writes are settled is the proof, also in quarantine.
		if !b.revoking {
			r.end(v, b)
			return
		}
		// The driver is still at it, so it stays a grant, of no page, until Revoked: else a peer that lets grants end
		// and aborts them would have more Revokes under way than the driver was told to expect.
		r.clear(v, b)
		return
	}
	if !b.revoking {
		r.revoke(v, b)
	}
}
