package engine

import (
	"bytes"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// requests contains the requests of which the proxy is to be notified. A request is all batches with the same request
// id. The table counts batches in and out, and decides of which request the proxy is notified next; the proxy's
// connection decides how.
type requests struct {
	cfg      requestsConfig `snap:"share"`
	slab     table.Slab[request]
	byID     table.Index
	queue    table.List // requests to notify the proxy of, oldest first
	notified table.List // requests that the proxy was notified of, oldest first
}

// A request is in one of three states:
//
//   - open: batches are in progress or may still arrive; once last is set, no further batch is accepted
//   - queued: the last batch arrived, and all batches have ended; the proxy is to be notified
//   - notified: the proxy was notified; the record prevents a second notification
type request struct {
	id            []byte // a copy of the engine's; the table owns it
	hash          uint64
	state         requestState
	last          bool
	openBatches   uint32         // batches in progress; each is one put
	missingChunks uint32         // chunks of the batches that failed
	attempts      uint32         // attempts to notify the proxy
	timer         kernel.TimerID `snap:"set"`
}

// requestState is the state of a request.
type requestState uint8

// The states of a request.
const (
	requestOpen requestState = iota
	requestQueued
	requestNotified
)

// requestsConfig is the configuration of requests.
type requestsConfig struct {
	max     uint32           // requests that are recorded
	ttl     effects.Duration // how long an idle or notified request is recorded
	noProxy bool             // there is no proxy to notify
	seed    uint64           // a secret
}

func (x *requests) recycle(cfg requestsConfig) requests {
	return requests{cfg: cfg, slab: x.slab.Recycle(int(cfg.max)), byID: x.byID.Recycle()}
}

// joinRequest counts a batch into the request with this id. An empty id belongs to no request.
func (x *requests) joinRequest(v *env.Env, id []byte, last bool) (table.Handle, effects.Code, *effects.Why) {
	h, code, why := x.checkJoin(v, id)
	if len(id) == 0 || code != effects.OK {
		return 0, code, why
	}
	if h == 0 {
		h = x.addRequest(v, id)
	}
	r := x.slab.Get(h)
	r.last = last
	r.openBatches++
	v.Timers.Stop(&r.timer)
	return h, effects.OK, nil
}

// checkJoin checks whether a batch may join the request with this id, and returns the request if it is known.
// checkJoin does not change the table.
func (x *requests) checkJoin(v *env.Env, id []byte) (table.Handle, effects.Code, *effects.Why) {
	h := x.findRequest(id)
	switch {
	case h == 0 && x.slab.Full() && x.notified.Front() == 0 && len(id) > 0:
		v.Out.Mark(Marks.RequestsFull)
		return 0, effects.TooMany, &effects.Why{
			Field: "tables.commands", Ours: "enough for " + formatCount(x.slab.Max()) + " requests, and as many are open",
			Remedy: "retry when the last batch of one has ended, or raise tables.commands",
		}
	case h != 0 && x.slab.Get(h).last:
		v.Out.Mark(Marks.RequestEnded)
		return 0, effects.Ended, &effects.Why{
			Field: "Request", Theirs: effects.SanitizeText(id), Ours: "a request without a last batch",
		}
	}
	return h, effects.OK, nil
}

func (x *requests) findRequest(id []byte) table.Handle {
	for p := x.byID.Find(table.Hash(x.cfg.seed, id)); p.Found(); p = x.byID.Next(p) {
		if bytes.Equal(x.slab.Get(p.Handle()).id, id) {
			return p.Handle()
		}
	}
	return 0
}

// addRequest records a request. If the table is full, addRequest drops the oldest request that the proxy was notified
// of. Invariant: checkJoin has found room, so the result is not zero.
func (x *requests) addRequest(v *env.Env, id []byte) table.Handle {
	if oldest := x.notified.Front(); x.slab.Full() && oldest != 0 {
		v.Timers.Stop(&x.slab.Get(oldest).timer)
		x.removeRequest(oldest)
	}
	h, r := x.slab.Add()
	if r != nil {
		*r = request{id: append(r.id[:0], id...), hash: table.Hash(x.cfg.seed, id)}
		x.byID.Add(r.hash, h)
	}
	return h
}

// requestID returns the id of a request, or nil if there is no such request.
func (x *requests) requestID(h table.Handle) []byte {
	if r := x.slab.Get(h); r != nil {
		return r.id
	}
	return nil
}

// leaveRequest counts a batch out of its request, and reports whether the proxy is to be notified now.
func (x *requests) leaveRequest(v *env.Env, h table.Handle, chunks uint32, code effects.Code) bool {
	r := x.slab.Get(h)
	if r == nil {
		return false
	}
	r.openBatches--
	if code != effects.OK {
		r.missingChunks += chunks
	}
	switch {
	case r.openBatches > 0:
	case !r.last:
		v.Timers.Set(&r.timer, v.Now.Add(x.cfg.ttl), engineRef(kindRequest, h))
	case x.cfg.noProxy:
		x.markNotified(v, h)
	default:
		r.state = requestQueued
		x.slab.PushBack(&x.queue, h)
		return true
	}
	return false
}

// len returns the number of recorded requests.
func (x *requests) len() int { return x.slab.Len() }

// countNotified returns the number of recorded requests that the proxy was notified of.
func (x *requests) countNotified() int { return x.notified.Len() }

// countQueued returns the number of requests that the proxy is to be notified of.
func (x *requests) countQueued() int { return x.queue.Len() }

// get returns the request with this handle, or nil if there is none.
func (x *requests) get(h table.Handle) *request { return x.slab.Get(h) }

// popQueued removes the oldest request from the queue, so that the proxy can be notified.
func (x *requests) popQueued() (table.Handle, *request) {
	h := x.queue.Front()
	x.slab.Unlink(&x.queue, h)
	return h, x.slab.Get(h)
}

// requeue puts a request that popQueued returned back to the front of the queue.
func (x *requests) requeue(h table.Handle) { x.slab.PushFront(&x.queue, h) }

// markNotified keeps a record of a request that the proxy was notified of, so that a batch that arrives late is refused
// and does not cause a second notification. The record is kept for the time ttl, and less if the table is full.
func (x *requests) markNotified(v *env.Env, h table.Handle) {
	r := x.slab.Get(h)
	r.state = requestNotified
	x.slab.PushBack(&x.notified, h)
	v.Timers.Set(&r.timer, v.Now.Add(x.cfg.ttl), engineRef(kindRequest, h))
}

// onTimer drops the record of an open request to which no batch came for the time ttl after its last one ended, or of a
// request that the proxy was notified of the time ttl ago.
func (x *requests) onTimer(h table.Handle) {
	x.slab.Get(h).timer = 0
	x.removeRequest(h)
}

func (x *requests) removeRequest(h table.Handle) {
	r := x.slab.Get(h)
	if r.state == requestNotified {
		x.slab.Unlink(&x.notified, h)
	}
	x.byID.Remove(r.hash, h)
	x.slab.Remove(h)
}
