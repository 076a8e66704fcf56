// Package outcomes records the requests of which peers send chunks to this node: which peer sends each request, and how
// a request ended at the sender. With this record a Get or Fetch of a request for which no more chunks will arrive ends
// at once, whether the engine issues the command before or after the sender's end-of-request message (rule M7 in
// docs/safety.md).
//
// A caller may rely on the following:
//
//   - The record is bounded for each fairness class, and an end is remembered for a bounded time.
//   - A peer's message does not end a request that another peer sends, as long as the sender is present.
//   - A message about an attempt of a request does not end a later attempt.
//   - Requests of two tenants with one id are two requests ([ID]), so that no peer ends a request of a tenant that it may
//     not touch (S31).
//
// Example: a prefill node sends the first batch of request 7, and the rank calls RecordBatch. The decode node's engine
// issues a Get for a chunk of the request that has not arrived. The prefill node then fails and reports that request 7
// has ended with an error. RecordEnd accepts the message, NextEnded returns 7, and the Get ends. A Get that the engine
// issues a second later finds the end with OutcomeOf and ends at once.
package outcomes

import (
	"math/bits"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// Requests is the table of the requests for which a message arrived lately.
type Requests struct {
	cfg           Config `snap:"share"`
	rows          table.Slab[row]
	byID          table.Index   // by request
	byClass       []table.List  // requests of each class; the request that was updated longest ago is first
	share         table.Share   // requests of each class
	losses        kernel.Losses // counts how often the peer of a class was lost
	reassignments kernel.Losses // counts how often a class was given to another peer
	endedQueue    []ID          // ended requests for which the waiting Gets were not examined yet
	notes         []note        // by class
}

// Config bounds the table.
type Config struct {
	Max int              // limit of requests
	TTL effects.Duration // how long the end of a request is remembered
}

// An ID names a request of a tenant: the hash of the request's id, combined with the tenant of the request's chunks. Zero
// is no request. An ID of the default tenant is the hash itself.
type ID uint64

// NewID returns the ID of a request of a tenant. The hash is the store's, which peers cannot compute, so that nobody can
// find an id that has the ID of another tenant's request.
func NewID(request uint64, tenant effects.Tenant) ID {
	if request == 0 || tenant == 0 {
		return ID(request)
	}
	const multiplier = 0x9e3779b97f4a7c15 // odd, so that no two tenants of one request have the same ID
	return ID(max(1, request^bits.RotateLeft64(uint64(tenant)*multiplier, 32)))
}

// IDByKey returns the ID of a request that has the chunk with a key.
func IDByKey(request uint64, key []byte) ID {
	return NewID(request, effects.Tenant(protocol.TenantOf(key)))
}

// A row holds the state of a request.
//
// Invariant: byID has one row for each id, and of[row.class] lists the row. In each list the row that was updated
// longest ago is first.
type row struct {
	request   ID
	class     int              // class of the peer that sends the request; 0: no peer has proven that it is the sender
	lossCount kernel.LossCount // loss count of class at the last update
	// Class of the peer that is stated to be the sender, proven or not; 0: that peer is unknown here.
	statedClass   int
	reassignCount kernel.LossCount // loss count of statedClass at the last update
	operation     uint64           // newest operation that the sender named
	key           []byte           // key of a chunk of the request; empty: no chunk arrived
	ended         bool
	queued        bool         // the request is in news
	code          effects.Code // how the request ended; OK: everything was sent
	reason        string       // the sender's explanation
	until         effects.Time // how long the end is remembered
}

// note is an explanation for the next reply to a peer: chunks that the peer sent are not the chunks that a command here
// waits for.
type note struct{ why *effects.Why }

// Outcome states how a request ended at the sender.
type Outcome struct {
	Code   effects.Code // OK: everything was sent
	Reason string       // the sender's explanation
	Class  int          // class of the sender
	Key    []byte       // key of a chunk that the sender sent, if any arrived; valid until the next call
}

// Recycle returns an empty table that reuses the memory of x, which must not be used afterwards.
func (x *Requests) Recycle(cfg Config, classes int) Requests {
	return Requests{
		cfg: cfg, rows: x.rows.Recycle(cfg.Max), byID: x.byID.Recycle(), byClass: table.RecycleSlice(x.byClass, classes),
		share: x.share.Recycle(cfg.Max, classes), losses: x.losses.Recycle(classes), reassignments: x.reassignments.Recycle(classes),
		endedQueue: x.endedQueue[:0],
		notes:      table.RecycleSlice(x.notes, classes),
	}
}

// findRow returns the row of a request; the row is nil if the request is unknown.
func (x *Requests) findRow(request ID) (table.Handle, *row) {
	h := x.byID.Find(uint64(request)).Handle()
	return h, x.rows.Get(h)
}

// isStatedSender reports whether the peer of a class is stated to be the sender of a request, and no second peer has
// had the class since then. The peer may have been lost in the meantime: after a new handshake the peer is the same
// sender.
func (x *Requests) isStatedSender(r *row, class int) bool {
	return r.statedClass == class && !x.reassignments.IsCondemned(class, r.reassignCount)
}

// hasPresentSender reports whether a request is in progress and its proven sender is present. No other peer can then
// change the request.
func (x *Requests) hasPresentSender(r *row) bool {
	return r.class != 0 && !r.ended && !x.losses.IsCondemned(r.class, r.lossCount)
}

// RecordBatch records that a batch of a request, or the retry of a batch that still stands, arrived from a peer. The
// key is that of the batch's first chunk. A request that had ended is in progress again if the batch belongs to a later
// attempt than the end, because the sender repeats what was given up. A batch of the same or an earlier attempt changes
// nothing, because the batch was in flight for long, perhaps until after the peer was lost.
//
// Example: the link of a sender is lost while its batch waits here for pages. A stranger's message ends the request.
// Then the sender shakes hands again and repeats the batch, and the request is in progress again.
func (x *Requests) RecordBatch(v *env.Env, class int, request ID, operation uint64, key []byte) {
	if request == 0 {
		return
	}
	h, r := x.findRow(request)
	switch {
	case r == nil:
		if r = x.addRow(v, class, request); r == nil {
			return
		}
	case !x.isStatedSender(r, class) && x.hasPresentSender(r):
		v.Out.Mark(Marks.OfOther)
		return
	case x.isStatedSender(r, class) && r.ended && operation <= r.operation:
		v.Out.Mark(Marks.BatchOfFormer)
		return
	default:
		x.moveRow(h, r, class)
	}
	r.operation = max(r.operation, operation)
	r.lossCount, r.statedClass, r.reassignCount = x.losses.CountFor(class), class, x.reassignments.CountFor(class)
	r.ended, r.reason = false, ""
	r.key = append(r.key[:0], key...)
}

// RecordEnd records how a request ended, according to a peer's message, and reports whether the message is accepted.
// The message is rejected in the following cases:
//
//   - The message belongs to an earlier attempt than the newest attempt that is known under the same name.
//   - The message does not come from the sender of the request, and the request is in progress with a sender that is
//     present, or an end of the request is remembered.
//   - The request is unknown and the class has no room for it (addRow).
//
// The argument statedClass is the class of the peer that the message states as the sender. The argument class is equal
// to statedClass if that is proven, and 0 otherwise. A message is compared with earlier messages under the same name
// whether or not the name is proven, because only the stated sender can lose by that.
//
// Example: the link of a sender is cut, and the sender reports the end of its first attempt before the next handshake
// is complete. The message arrives when chunks of the second attempt are here. The message ends nothing, although no
// present peer owns the request.
func (x *Requests) RecordEnd(
	v *env.Env, class, statedClass int, request ID, operation uint64, code effects.Code, reason string,
) bool {
	h, r := x.findRow(request)
	switch {
	case r == nil:
		if r = x.addRow(v, class, request); r == nil {
			return false
		}
	case x.isStatedSender(r, statedClass) && operation < r.operation:
		v.Out.Mark(Marks.EndOfFormer)
		return false
	case !x.isFromSender(r, class, statedClass) && (x.hasPresentSender(r) || r.ended && r.until > v.Now):
		v.Out.Mark(Marks.EndOfOther)
		return false
	default:
		x.moveRow(h, r, class)
	}
	r.operation, r.lossCount = operation, x.losses.CountFor(class)
	r.statedClass, r.reassignCount = statedClass, x.reassignments.CountFor(statedClass)
	r.ended, r.code, r.reason, r.until = true, code, reason, v.Now.Add(x.cfg.TTL)
	if !r.queued {
		r.queued = true
		x.endedQueue = append(x.endedQueue, request)
	}
	return true
}

// isFromSender reports whether a message under a name comes from the sender of a request. Proof of the name is required
// only if the sender of the request is proven.
func (x *Requests) isFromSender(r *row, class, statedClass int) bool {
	return x.isStatedSender(r, statedClass) && (class != 0 || r.class == 0)
}

// OutcomeOf returns how a request ended, or reports false if the request has not ended or if the end is not remembered
// any more.
func (x *Requests) OutcomeOf(now effects.Time, request ID) (Outcome, bool) {
	if request == 0 {
		return Outcome{}, false
	}
	_, r := x.findRow(request)
	if r == nil || !r.ended || r.until <= now {
		return Outcome{}, false
	}
	return Outcome{Code: r.code, Reason: r.reason, Class: r.class, Key: r.key}, true
}

// NextEnded returns the oldest ended request for which the waiting Gets were not examined yet, or 0 if there is none.
// The call of PopEnded makes room for the next request.
func (x *Requests) NextEnded() ID {
	if len(x.endedQueue) == 0 {
		return 0
	}
	return x.endedQueue[0]
}

// PopEnded records that all Gets of the request that NextEnded returned have been examined.
func (x *Requests) PopEnded() {
	if _, r := x.findRow(x.endedQueue[0]); r != nil {
		r.queued = false
	}
	x.endedQueue = append(x.endedQueue[:0], x.endedQueue[1:]...)
}

// OnPeerLost records that a peer is gone. The peer's requests may be ended by any peer from now on, which may be a
// later incarnation of the same peer.
func (x *Requests) OnPeerLost(class int) { x.losses.CondemnRows(class) }

// OnClassReassigned records that a class belongs to another peer from now on. The ends of the former peer's requests
// stay known.
func (x *Requests) OnClassReassigned(class int) {
	x.notes[class] = note{}
	x.losses.CondemnRows(class)
	x.reassignments.CondemnRows(class)
}

// SetNote stores an explanation for the next reply to a peer. A newer note replaces an older note.
func (x *Requests) SetNote(class int, why *effects.Why) { x.notes[class] = note{why} }

// SetSenderNote stores an explanation for the peer that sends a request, if that peer is known.
func (x *Requests) SetSenderNote(request ID, why *effects.Why) {
	if _, r := x.findRow(request); r != nil && r.class != 0 {
		x.SetNote(r.class, why)
	}
}

// TakeNote removes and returns the explanation for the next reply to a peer, or nil if there is none.
func (x *Requests) TakeNote(class int) (why *effects.Why) {
	why, x.notes[class] = x.notes[class].why, note{}
	return why
}

// Len returns the number of requests in the table.
func (x *Requests) Len() int { return x.rows.Len() }

// addRow inserts a request. First add evicts up to two of the class's oldest requests: a request is evicted if the
// class has used up its share, or if the end of the request is not remembered any more. Expired rows therefore leave
// faster than new rows arrive, but never all at once. If the class still has no room, addRow returns nil and the
// request is not recorded.
func (x *Requests) addRow(v *env.Env, class int, request ID) *row {
	for range 2 {
		h := x.byClass[class].Front()
		if r := x.rows.Get(h); r != nil && (!x.share.HasRoom(class) || r.ended && r.until <= v.Now) {
			x.removeRow(h)
		}
	}
	if !x.share.HasRoom(class) {
		v.Out.Mark(Marks.Full)
		return nil
	}
	x.share.Acquire(class)
	h, r := x.rows.Add()
	*r = row{request: request, class: class, key: r.key[:0]}
	x.byID.Add(uint64(request), h)
	x.rows.PushBack(&x.byClass[class], h)
	return r
}

// moveRow assigns a request to a class as the newest request of that class.
func (x *Requests) moveRow(h table.Handle, r *row, class int) {
	x.rows.Unlink(&x.byClass[r.class], h)
	if r.class != class {
		x.share.Release(r.class)
		x.share.Acquire(class) // the former class gave up one place, so there is room
		r.class, r.operation, r.key = class, 0, r.key[:0]
	}
	x.rows.PushBack(&x.byClass[class], h)
}

// removeRow removes a row.
func (x *Requests) removeRow(h table.Handle) {
	r := x.rows.Get(h)
	x.byID.Remove(uint64(r.request), h)
	x.rows.Unlink(&x.byClass[r.class], h)
	x.share.Release(r.class)
	r.key, r.reason = table.TrimBytes(r.key), ""
	x.rows.Remove(h)
}

// RecountShares counts the requests of each class again.
func (x *Requests) RecountShares(r *table.Recount) {
	table.RecountRows(r, "requests with outcomes", &x.share, &x.rows, table.Bounded, func(w *row) (class, n int) { return w.class, 1 })
}
