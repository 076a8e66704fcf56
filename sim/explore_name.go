package sim

import (
	"reflect"
	"unsafe"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/snapshot"
)

// named hashes values of type T by a name.
func named[T any](name func(v T) uint64) snapshot.Rule {
	return snapshot.Rule{
		Type: reflect.TypeFor[T](),
		Hash: func(h *snapshot.Hasher, p unsafe.Pointer) { h.Word(name(*(*T)(p))) },
	}
}

// nameRules hash what stands for something else by its name: pointers between the parts
// of a world, and the numbers that drivers gave.
func (s *shape) nameRules() []snapshot.Rule {
	word := func(name func(p unsafe.Pointer) uint64) func(h *snapshot.Hasher, p unsafe.Pointer) {
		return func(h *snapshot.Hasher, p unsafe.Pointer) { h.Word(name(p)) }
	}
	return []snapshot.Rule{
		{At: "*sim.node", Hash: word(func(p unsafe.Pointer) uint64 {
			if n := *(**node)(p); n != nil {
				return uint64(n.subject())
			}
			return 0
		})},
		{At: "*sim.pool", Hash: word(func(p unsafe.Pointer) uint64 {
			if x := *(**pool)(p); x != nil {
				return uint64(aboutNode(x.node.id, x.life))
			}
			return 0
		})},
		{At: "sim.pool.node", Skip: true},
		{At: "*sim.conn", Hash: word(func(p unsafe.Pointer) uint64 {
			if c := *(**conn)(p); c != nil {
				return uint64(c.name)
			}
			return 0
		})},
		{At: "*sim.transfer", Hash: word(func(p unsafe.Pointer) uint64 {
			if t := *(**transfer)(p); t != nil {
				return uint64(t.name)
			}
			return 0
		})},
		{At: "*sim.grant", Hash: word(func(p unsafe.Pointer) uint64 {
			if g := *(**grant)(p); g != nil {
				return uint64(g.id)
			}
			return 0
		})},
		{At: "*sim.link", Hash: word(func(p unsafe.Pointer) uint64 {
			if l := *(**link)(p); l != nil {
				return s.link(l.id)
			}
			return 0
		})},
		{At: "effects.Conn", Hash: word(func(p unsafe.Pointer) uint64 { return s.conn(*(*uint64)(p)) })},
		{At: "effects.Link", Hash: word(func(p unsafe.Pointer) uint64 { return s.link(*(*uint64)(p)) })},
		{At: "effects.Ticket", Hash: word(func(p unsafe.Pointer) uint64 { return s.ticket(*(*uint64)(p)) })},
		{At: "effects.Request", Hash: word(func(p unsafe.Pointer) uint64 { return s.request(*(*uint64)(p)) })},
		{At: "sim.conn.id", Skip: true},
		{At: "sim.waiter.request", Hash: word(func(p unsafe.Pointer) uint64 { return s.request(*(*uint64)(p)) })},
		{At: "sim.waiter.conn", Hash: word(func(p unsafe.Pointer) uint64 { return s.conn(*(*uint64)(p)) })},
		{At: "sim.link.id", Hash: word(func(p unsafe.Pointer) uint64 { return s.link(*(*uint64)(p)) })},
		{At: "sim.transfer.id", Skip: true},
		// Who waits for what is in the machines; here it says which of them it is.
		{At: "sim.conn.waiting", Hash: func(h *snapshot.Hasher, p unsafe.Pointer) {
			at, _ := snapshot.Offset(reflect.TypeFor[conn](), "waiting")
			c := (*conn)(unsafe.Add(p, -int(at)))
			s.waiting(h, c.client, c.life, c.waiting)
		}},
		{At: "sim.conn.asked", Hash: func(h *snapshot.Hasher, p unsafe.Pointer) {
			at, _ := snapshot.Offset(reflect.TypeFor[conn](), "asked")
			if c := (*conn)(unsafe.Add(p, -int(at))); c.waiting != 0 {
				h.Word(s.age(int64(c.asked)))
			}
		}},
		{At: "sim.request.corr", Skip: true}, // of the connection that is named beside it
		{At: "sim.transfer.corr", Hash: func(h *snapshot.Hasher, p unsafe.Pointer) {
			at, _ := snapshot.Offset(reflect.TypeFor[transfer](), "corr")
			t := (*transfer)(unsafe.Add(p, -int(at)))
			s.waiting(h, t.local.node.id, t.local.life, t.corr)
		}},
	}
}

func (s *shape) waiting(h *snapshot.Hasher, node int32, life uint32, c effects.Corr) {
	if c == 0 {
		h.Word(0)
		return
	}
	s.outstanding(h, s.w.nodes[node], life, c)
}

// conn is the name of a connection as its client or its server numbers it.
func (s *shape) conn(id uint64) uint64 {
	if id&(1<<40) != 0 {
		if c := s.w.connOf(id & (1<<32 - 1)); c != nil {
			return uint64(mix(uint64(c.name), id>>32))
		}
	}
	if c := s.w.connOf(id); c != nil {
		return uint64(c.name)
	}
	return id
}

// link is the name of a link: the how-many-th of its life.
func (s *shape) link(id uint64) uint64 {
	if id == 0 || id > uint64(len(s.w.links)) {
		return id
	}
	l, nth := s.w.links[id-1], uint64(1)
	for _, other := range s.w.links[:id-1] {
		if other.from == l.from && other.fromLife == l.fromLife {
			nth++
		}
	}
	return uint64(aboutNode(l.from, l.fromLife)) ^ nth<<40
}

func (s *shape) ticket(id uint64) uint64 {
	if id == 0 || id > uint64(len(s.w.commands)) {
		return id
	}
	return uint64(s.w.commands[id-1].name)
}

func (s *shape) transfer(id uint64) uint64 {
	if id == 0 || id > uint64(len(s.w.transfers)) {
		return id
	}
	return uint64(s.w.transfers[id-1].name)
}

// request is the name of a request: the how-many-th that came on its connection.
func (s *shape) request(id uint64) uint64 {
	if id == 0 || id > uint64(len(s.w.requests)) {
		return id
	}
	r, nth := &s.w.requests[id-1], uint64(1)
	if r.conn == nil {
		return id
	}
	for i := range s.w.requests[:id-1] {
		if s.w.requests[i].conn == r.conn {
			nth++
		}
	}
	return mix(uint64(r.conn.name), nth)
}

// queue hashes what is under way: each channel in its order, the channels in any.
func (s *shape) queue(h *snapshot.Hasher, p unsafe.Pointer) {
	q := (*queue)(p)
	total := uint64(0)
	for _, mine := range q.heap {
		d := &q.slab[mine.slot]
		ch, ahead := s.w.channelOf(d), uint64(0)
		if ch != 0 {
			for _, other := range q.heap {
				if other.seq < mine.seq && s.w.channelOf(&q.slab[other.slot]) == ch {
					ahead++
				}
			}
		}
		one := h.Apart()
		one.Word(ahead)
		s.delivery(&one, d)
		total += one.Sum()
	}
	h.Word(total)
}

// delivery hashes one delivery, its numbers by what they name.
func (s *shape) delivery(h *snapshot.Hasher, d *delivery) {
	h.Word(uint64(d.kind)<<48 | uint64(uint16(d.node))<<32 | uint64(d.life))
	h.Bytes(d.body)
	a, b, c := d.a, d.b, d.c
	switch d.kind {
	case kindCommand, kindLetGo, kindAbort:
		a = s.ticket(a)
	case kindOpened, kindReplied, kindSendDone, kindUnanswered, kindImported:
		s.waiting(h, d.node, d.life, effects.Corr(a))
		a = 0
		switch d.kind {
		case kindOpened, kindReplied:
			b = s.conn(b)
		case kindImported:
			c = s.link(c)
		default:
		}
	case kindScattered:
		s.waiting(h, d.node, d.life, effects.Corr(a))
		a, b = 0, s.ticket(b)
	case kindConnLost, kindTold:
		a = s.conn(a)
	case kindLinkLost, kindDropped, kindNoticed:
		a = s.link(a)
	case kindTransferDone, kindSettled, kindLanded, kindSubmit, kindAsk, kindCopy, kindStore, kindLoad:
		a = s.transfer(a)
	case kindArrive, kindAnswer:
		client := s.w.conns[a-1]
		s.waiting(h, client.client, client.life, effects.Corr(b))
		a, b = s.conn(a), 0
	default: // Numbers of jobs, nodes, lives and grants mean the same in every history.
	}
	h.Word(a)
	h.Word(b)
	h.Word(c)
}
