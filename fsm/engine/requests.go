package engine

import (
	"bytes"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// Requests are what the proxy waits for: all batches with one request id. They count batches in and out, and say
// whose turn it is to be told of; how it is told is for its connection.
type Requests struct {
	cfg   RequestsConfig `snap:"share"`
	slab  table.Slab[Request]
	byID  table.Index
	queue table.List // those of which the proxy is to be told, oldest first
	told  table.List // tombstones, oldest first
}

// A Request is in one of three states:
//
//   - open: batches may come
//   - queued: the last batch was seen and none is open; the proxy is to be told
//   - told: remembered, so that it is told at most once
type Request struct {
	ID      []byte // as the engine gave it; the table's
	hash    uint64
	state   RequestState
	last    bool
	puts    uint32
	Missing uint32         // chunks that did not arrive
	Tries   uint32         // to tell the proxy
	timer   kernel.TimerID `snap:"set"`
}

// RequestState is where a request stands.
type RequestState uint8

// The states.
const (
	RequestOpen RequestState = iota
	RequestQueued
	RequestTold
)

// RequestsConfig is what Requests need to know.
type RequestsConfig struct {
	Max    uint32           // requests that are remembered
	TTL    effects.Duration // for which one is, open or told
	Silent bool             // there is no proxy: nobody is told
	Owner  kernel.Ref       // stands for one of them, with its subject, in deadlines
	Seed   uint64           // a secret
}

// NewRequests returns an empty table.
func NewRequests(cfg RequestsConfig) Requests {
	return Requests{cfg: cfg, slab: table.NewSlab[Request](int(cfg.Max))}
}

func (x *Requests) ref(h table.Handle) kernel.Ref {
	ref := x.cfg.Owner
	ref.Subject = h
	return ref
}

// Join counts a batch into the request with an id, which may be none.
func (x *Requests) Join(v *env.Env, id []byte, last bool) (table.Handle, effects.Code, *effects.Why) {
	if len(id) == 0 {
		return 0, effects.OK, nil
	}
	h := x.find(id)
	if h == 0 {
		if h = x.add(v, id); h == 0 {
			v.Out.Mark(MarkRequestsFull)
			return 0, effects.TooMany, &effects.Why{
				Field: "tables.commands", Ours: "enough for " + number(x.slab.Max()) + " requests, and as many are open",
				Remedy: "retry when the last batch of one has ended, or raise tables.commands",
			}
		}
	}
	r := x.slab.Get(h)
	if r.last {
		v.Out.Mark(MarkRequestEnded)
		return 0, effects.Ended, &effects.Why{
			Field: "Request", Theirs: effects.Words(id), Ours: "one that had no last batch",
		}
	}
	r.last = last
	r.puts++
	v.Timers.Stop(&r.timer)
	return h, effects.OK, nil
}

func (x *Requests) find(id []byte) table.Handle {
	for p := x.byID.Seek(table.Hash(x.cfg.Seed, id)); p.Found(); p = x.byID.Next(p) {
		if bytes.Equal(x.slab.Get(p.Handle()).ID, id) {
			return p.Handle()
		}
	}
	return 0
}

// add makes room by forgetting the oldest that was told; there is none where all are open.
func (x *Requests) add(v *env.Env, id []byte) table.Handle {
	if oldest := x.told.Front(); x.slab.Full() && oldest != 0 {
		v.Timers.Stop(&x.slab.Get(oldest).timer)
		x.forget(oldest)
	}
	h, r := x.slab.Add()
	if r != nil {
		*r = Request{ID: append(r.ID[:0], id...), hash: table.Hash(x.cfg.Seed, id)}
		x.byID.Add(r.hash, h)
	}
	return h
}

// Name is the id of a request; none of no request.
func (x *Requests) Name(h table.Handle) []byte {
	if r := x.slab.Get(h); r != nil {
		return r.ID
	}
	return nil
}

// Leave counts a batch out of its request, and says whether the proxy is to be told of that now.
func (x *Requests) Leave(v *env.Env, h table.Handle, chunks uint32, code effects.Code) bool {
	r := x.slab.Get(h)
	if r == nil {
		return false
	}
	r.puts--
	if code != effects.OK {
		r.Missing += chunks
	}
	switch {
	case r.puts > 0:
	case !r.last:
		v.Timers.Set(&r.timer, v.Now.Add(x.cfg.TTL), x.ref(h))
	case x.cfg.Silent:
		x.BecomeTold(v, h)
	default:
		r.state = RequestQueued
		x.slab.PushBack(&x.queue, h)
		return true
	}
	return false
}

// Len is the number of requests that are remembered.
func (x *Requests) Len() int { return x.slab.Len() }

// Told is the number of those of which the proxy was told.
func (x *Requests) Told() int { return x.told.Len() }

// Queued is the number of those of which the proxy is to be told.
func (x *Requests) Queued() int { return x.queue.Len() }

// Of is the request that Next gave.
func (x *Requests) Of(h table.Handle) *Request { return x.slab.Get(h) }

// Next takes the request out of the queue that the proxy is to be told of.
func (x *Requests) Next() (table.Handle, *Request) {
	h := x.queue.Front()
	x.slab.Unlink(&x.queue, h)
	return h, x.slab.Get(h)
}

// Again puts one back that Next gave, as the next.
func (x *Requests) Again(h table.Handle) { x.slab.PushFront(&x.queue, h) }

// BecomeTold keeps the request for a while: a batch that comes late must not have the proxy told once more.
func (x *Requests) BecomeTold(v *env.Env, h table.Handle) {
	r := x.slab.Get(h)
	r.state = RequestTold
	x.slab.PushBack(&x.told, h)
	v.Timers.Set(&r.timer, v.Now.Add(x.cfg.TTL), x.ref(h))
}

// Due forgets a request of which nothing came for long: neither a batch nor, after it was told, a late one.
func (x *Requests) Due(h table.Handle) {
	x.slab.Get(h).timer = 0
	x.forget(h)
}

// State is that of a request, if it is remembered.
func (x *Requests) State(h table.Handle) (RequestState, bool) {
	if r := x.slab.Get(h); r != nil {
		return r.state, true
	}
	return RequestOpen, false
}

func (x *Requests) forget(h table.Handle) {
	r := x.slab.Get(h)
	if r.state == RequestTold {
		x.slab.Unlink(&x.told, h)
	}
	x.byID.Remove(r.hash, h)
	x.slab.Remove(h)
}
