package engine

import (
	"bytes"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// requests are what the proxy waits for: all batches with one request id. They count batches in and out, and say
// whose turn it is to be told of; how it is told is for its connection.
type requests struct {
	cfg   requestsConfig `snap:"share"`
	slab  table.Slab[request]
	byID  table.Index
	queue table.List // those of which the proxy is to be told, oldest first
	told  table.List // tombstones, oldest first
}

// A request is in one of three states:
//
//   - open: batches may come
//   - queued: the last batch was seen and none is open; the proxy is to be told
//   - told: remembered, so that it is told at most once
type request struct {
	id      []byte // as the engine gave it; the table's
	hash    uint64
	state   requestState
	last    bool
	puts    uint32
	missing uint32         // chunks that did not arrive
	tries   uint32         // to tell the proxy
	timer   kernel.TimerID `snap:"set"`
}

// requestState is where a request stands.
type requestState uint8

// The states.
const (
	requestOpen requestState = iota
	requestQueued
	requestTold
)

// requestsConfig is what requests need to know.
type requestsConfig struct {
	max    uint32           // requests that are remembered
	ttl    effects.Duration // for which one is, open or told
	silent bool             // there is no proxy: nobody is told
	seed   uint64           // a secret
}

func (x *requests) emptied(cfg requestsConfig) requests {
	return requests{cfg: cfg, slab: x.slab.Emptied(int(cfg.max)), byID: x.byID.Emptied()}
}

// join counts a batch into the request with an id, which may be none.
func (x *requests) join(v *env.Env, id []byte, last bool) (table.Handle, effects.Code, *effects.Why) {
	h, code, why := x.admit(v, id)
	if len(id) == 0 || code != effects.OK {
		return 0, code, why
	}
	if h == 0 {
		h = x.add(v, id)
	}
	r := x.slab.Get(h)
	r.last = last
	r.puts++
	v.Timers.Stop(&r.timer)
	return h, effects.OK, nil
}

// admit says whether a batch of a request may join, and gives the request if it is known. It changes nothing.
func (x *requests) admit(v *env.Env, id []byte) (table.Handle, effects.Code, *effects.Why) {
	h := x.find(id)
	switch {
	case h == 0 && x.slab.Full() && x.told.Front() == 0 && len(id) > 0:
		v.Out.Mark(Marks.RequestsFull)
		return 0, effects.TooMany, &effects.Why{
			Field: "tables.commands", Ours: "enough for " + number(x.slab.Max()) + " requests, and as many are open",
			Remedy: "retry when the last batch of one has ended, or raise tables.commands",
		}
	case h != 0 && x.slab.Get(h).last:
		v.Out.Mark(Marks.RequestEnded)
		return 0, effects.Ended, &effects.Why{
			Field: "Request", Theirs: effects.Words(id), Ours: "one that had no last batch",
		}
	}
	return h, effects.OK, nil
}

func (x *requests) find(id []byte) table.Handle {
	for p := x.byID.Seek(table.Hash(x.cfg.seed, id)); p.Found(); p = x.byID.Next(p) {
		if bytes.Equal(x.slab.Get(p.Handle()).id, id) {
			return p.Handle()
		}
	}
	return 0
}

// add makes room by forgetting the oldest that was told; there is none where all are open.
func (x *requests) add(v *env.Env, id []byte) table.Handle {
	if oldest := x.told.Front(); x.slab.Full() && oldest != 0 {
		v.Timers.Stop(&x.slab.Get(oldest).timer)
		x.forget(oldest)
	}
	h, r := x.slab.Add()
	if r != nil {
		*r = request{id: append(r.id[:0], id...), hash: table.Hash(x.cfg.seed, id)}
		x.byID.Add(r.hash, h)
	}
	return h
}

// name is the id of a request; none of no request.
func (x *requests) name(h table.Handle) []byte {
	if r := x.slab.Get(h); r != nil {
		return r.id
	}
	return nil
}

// leave counts a batch out of its request, and says whether the proxy is to be told of that now.
func (x *requests) leave(v *env.Env, h table.Handle, chunks uint32, code effects.Code) bool {
	r := x.slab.Get(h)
	if r == nil {
		return false
	}
	r.puts--
	if code != effects.OK {
		r.missing += chunks
	}
	switch {
	case r.puts > 0:
	case !r.last:
		v.Timers.Set(&r.timer, v.Now.Add(x.cfg.ttl), ref(kindRequest, h))
	case x.cfg.silent:
		x.becomeTold(v, h)
	default:
		r.state = requestQueued
		x.slab.PushBack(&x.queue, h)
		return true
	}
	return false
}

// len is the number of requests that are remembered.
func (x *requests) len() int { return x.slab.Len() }

// toldLen is the number of those of which the proxy was told.
func (x *requests) toldLen() int { return x.told.Len() }

// queued is the number of those of which the proxy is to be told.
func (x *requests) queued() int { return x.queue.Len() }

// of is the request that next gave.
func (x *requests) of(h table.Handle) *request { return x.slab.Get(h) }

// next takes the request out of the queue that the proxy is to be told of.
func (x *requests) next() (table.Handle, *request) {
	h := x.queue.Front()
	x.slab.Unlink(&x.queue, h)
	return h, x.slab.Get(h)
}

// again puts one back that next gave, as the next.
func (x *requests) again(h table.Handle) { x.slab.PushFront(&x.queue, h) }

// becomeTold keeps the request for a while: a batch that comes late must not have the proxy told once more.
func (x *requests) becomeTold(v *env.Env, h table.Handle) {
	r := x.slab.Get(h)
	r.state = requestTold
	x.slab.PushBack(&x.told, h)
	v.Timers.Set(&r.timer, v.Now.Add(x.cfg.ttl), ref(kindRequest, h))
}

// due forgets a request of which nothing came for long: neither a batch nor, after it was told, a late one.
func (x *requests) due(h table.Handle) {
	x.slab.Get(h).timer = 0
	x.forget(h)
}

func (x *requests) forget(h table.Handle) {
	r := x.slab.Get(h)
	if r.state == requestTold {
		x.slab.Unlink(&x.told, h)
	}
	x.byID.Remove(r.hash, h)
	x.slab.Remove(h)
}
