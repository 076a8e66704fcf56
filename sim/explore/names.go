package explore

import (
	"fmt"
	"reflect"
	"unsafe"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
	"github.com/kvferry/kvferry/snapshot"
)

// nameRule returns a rule that hashes values of type T by a name.
func nameRule[T any](name func(v T) uint64) snapshot.Rule {
	return snapshot.Rule{
		Type: reflect.TypeFor[T](),
		Hash: func(h *snapshot.Hasher, p unsafe.Pointer) { h.Word(name(*(*T)(p))) },
	}
}

// tagRule returns a rule that hashes the fields of type T that have the given tag. The rule panics for a field of
// another type with this tag.
func tagRule[T any](tag string, hash func(h *snapshot.Hasher, v *T)) snapshot.Rule {
	compile := func(_ *snapshot.Walker, t reflect.Type) func(h *snapshot.Hasher, p unsafe.Pointer) {
		if want := reflect.TypeFor[T](); t != want {
			panic(fmt.Sprintf("BUG: a field of type %s has the tag %q, which is for type %s", t, tag, want))
		}
		return func(h *snapshot.Hasher, p unsafe.Pointer) { hash(h, (*T)(p)) }
	}
	return snapshot.Rule{Word: tag, Compile: compile}
}

// numberRule returns a rule that hashes numbers with the given tag by a name.
func numberRule(tag string, name func(id uint64) uint64) snapshot.Rule {
	return tagRule(tag, func(h *snapshot.Hasher, id *uint64) { h.Word(name(*id)) })
}

// nameRules returns the rules for references: pointers between the parts of a world, and the numbers that drivers
// assign. A reference is hashed by the name of its target.
func (s *stateHasher) nameRules() []snapshot.Rule {
	return []snapshot.Rule{
		nameRule(func(n *world.Node) uint64 {
			if n == nil {
				return 0
			}
			return uint64(n.Subject())
		}),
		nameRule(func(x *world.Pool) uint64 {
			if x == nil {
				return 0
			}
			return uint64(plan.AboutNode(x.Node.ID, x.Incarnation))
		}),
		nameRule(func(c *world.Conn) uint64 {
			if c == nil {
				return 0
			}
			return uint64(c.Name)
		}),
		nameRule(func(t *world.Transfer) uint64 {
			if t == nil {
				return 0
			}
			return uint64(t.Name)
		}),
		nameRule(func(g *world.Grant) uint64 {
			if g == nil {
				return 0
			}
			return uint64(g.ID)
		}),
		nameRule(func(l *world.Link) uint64 {
			if l == nil {
				return 0
			}
			return s.linkName(l.ID)
		}),
		nameRule(func(id effects.Conn) uint64 { return s.connName(uint64(id)) }),
		nameRule(func(id effects.Link) uint64 { return s.linkName(uint64(id)) }),
		nameRule(func(id effects.Ticket) uint64 { return s.ticketName(uint64(id)) }),
		nameRule(func(id effects.Request) uint64 { return s.requestName(uint64(id)) }),
		numberRule("conn", s.connName),
		numberRule("link", s.linkName),
		numberRule("request", s.requestName),
		// The object itself is hashed here, and not only its name.
		{Word: "whole", OverridesType: true, Compile: compileWhole},
		{Type: reflect.TypeFor[world.Conn](), Compile: s.compileConn},
		{Type: reflect.TypeFor[world.Transfer](), Compile: s.compileTransfer},
	}
}

// compileWhole hashes what a pointer, or each pointer of a slice, points to.
func compileWhole(_ *snapshot.Walker, t reflect.Type) func(h *snapshot.Hasher, p unsafe.Pointer) {
	if t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Pointer {
		elem := t.Elem().Elem()
		return func(h *snapshot.Hasher, p unsafe.Pointer) {
			for _, target := range *(*[]unsafe.Pointer)(p) {
				h.Value(elem, target)
			}
		}
	}
	if t.Kind() != reflect.Pointer {
		panic(fmt.Sprintf("BUG: a field of type %s has the tag \"whole\", which is for pointers", t))
	}
	elem := t.Elem()
	return func(h *snapshot.Hasher, p unsafe.Pointer) { h.Value(elem, *(*unsafe.Pointer)(p)) }
}

// compileConn hashes, in addition to the rest of a connection, the requests that its client waits for. The machine
// knows what each request is for, and this identifies the request for that purpose.
func (s *stateHasher) compileConn(w *snapshot.Walker, t reflect.Type) func(h *snapshot.Hasher, p unsafe.Pointer) {
	rest := w.StructureHash(t)
	return func(h *snapshot.Hasher, p unsafe.Pointer) {
		rest(h, p)
		c := (*world.Conn)(p)
		for i := range c.Requests {
			if q := &c.Requests[i]; !q.Ended {
				s.hashWaiting(h, c.Client, c.Incarnation, q.Corr)
				h.Word(s.ageOf(int64(q.SentAt)))
			}
			h.Bytes(c.Requests[i].Parked)
		}
	}
}

// compileTransfer hashes, in addition to the rest of a transfer, what its initiator uses the transfer for.
func (s *stateHasher) compileTransfer(w *snapshot.Walker, t reflect.Type) func(h *snapshot.Hasher, p unsafe.Pointer) {
	rest := w.StructureHash(t)
	return func(h *snapshot.Hasher, p unsafe.Pointer) {
		rest(h, p)
		x := (*world.Transfer)(p)
		s.hashWaiting(h, x.Local.Node.ID, x.Local.Incarnation, x.Corr)
	}
}

// hashWaiting hashes what a node's machine uses a Corr for.
func (s *stateHasher) hashWaiting(h *snapshot.Hasher, node int32, life uint32, c effects.Corr) {
	if c == 0 {
		h.Word(0)
		return
	}
	s.hashOutstanding(h, s.w.Nodes[node], life, c)
}

// connName returns the name of a connection, given the number that its client or its server uses.
func (s *stateHasher) connName(id uint64) uint64 {
	if id&(1<<40) != 0 {
		if c := s.w.ConnOf(world.ClientConnID(id)); c != nil {
			return uint64(draw.Mix(uint64(c.Name), id>>32))
		}
	}
	if c := s.w.ConnOf(id); c != nil {
		return uint64(c.Name)
	}
	return id
}

// linkName returns the name of a link: an ordinal among the links of the same incarnation.
func (s *stateHasher) linkName(id uint64) uint64 {
	if id == 0 || id > uint64(len(s.w.Links)) {
		return id
	}
	l, nth := s.w.Links[id-1], uint64(1)
	for _, other := range s.w.Links[:id-1] {
		if other.From == l.From && other.FromIncarnation == l.FromIncarnation {
			nth++
		}
	}
	return uint64(plan.AboutNode(l.From, l.FromIncarnation)) ^ nth<<40
}

// ticketName returns the name of a command.
func (s *stateHasher) ticketName(id uint64) uint64 {
	if id == 0 || id > uint64(s.run.CommandCount()) {
		return id
	}
	return s.run.TicketName(effects.Ticket(id))
}

// transferName returns the name of a transfer.
func (s *stateHasher) transferName(id uint64) uint64 {
	if id == 0 || id > uint64(len(s.w.Transfers)) {
		return id
	}
	return uint64(s.w.Transfers[id-1].Name)
}

// requestName returns the name of a request: its ordinal among the requests of the same connection.
func (s *stateHasher) requestName(id uint64) uint64 {
	if id == 0 || id > uint64(len(s.w.Requests)) {
		return id
	}
	r, nth := &s.w.Requests[id-1], uint64(1)
	if r.Conn == nil {
		return id
	}
	for i := range s.w.Requests[:id-1] {
		if s.w.Requests[i].Conn == r.Conn {
			nth++
		}
	}
	return draw.Mix(uint64(r.Conn.Name), nth)
}

// hashQueue hashes the queued deliveries: each channel in its order, and the channels in any order.
func (s *stateHasher) hashQueue(h *snapshot.Hasher, p unsafe.Pointer) {
	q := (*world.Queue)(p)
	total := uint64(0)
	for _, queued := range q.Heap {
		d := &q.Slab[queued.Slot]
		ch, ahead := channelOf(s.w, d), uint64(0)
		if ch != 0 {
			for _, other := range q.Heap {
				if other.Seq < queued.Seq && channelOf(s.w, &q.Slab[other.Slot]) == ch {
					ahead++
				}
			}
		}
		hash := h.Fork()
		hash.Word(ahead)
		s.hashDelivery(&hash, d)
		total += hash.Sum()
	}
	h.Word(total)
}

// hashDelivery hashes a delivery. The numbers of the delivery are replaced by the names of the things that the numbers
// identify.
func (s *stateHasher) hashDelivery(h *snapshot.Hasher, d *world.Delivery) {
	h.Word(uint64(d.Kind)<<48 | uint64(uint16(d.Node))<<32 | uint64(d.Incarnation))
	h.Bytes(d.Body)
	a, b, c := d.A, d.B, d.C
	switch d.Kind {
	case world.KindCommand, world.KindReleasePages, world.KindAbortCommand:
		a = s.ticketName(a)
	case world.KindOpened, world.KindReplied, world.KindSendDone, world.KindUnanswered, world.KindImported:
		s.hashWaiting(h, d.Node, d.Incarnation, effects.Corr(a))
		a = 0
		switch d.Kind {
		case world.KindOpened, world.KindReplied:
			b = s.connName(b)
		case world.KindImported:
			c = s.linkName(c)
		default:
		}
	case world.KindScattered:
		s.hashWaiting(h, d.Node, d.Incarnation, effects.Corr(a))
		a, b = 0, s.ticketName(b)
	case world.KindConnLost, world.KindPostArrives:
		a = s.connName(a)
	case world.KindLinkLost, world.KindDropped, world.KindPeerDeathNoticed:
		a = s.linkName(a)
	case world.KindTransferDone, world.KindSettled, world.KindLanded, world.KindSubmit, world.KindTransferRequest, world.KindCopy,
		world.KindStore, world.KindLoad:
		a = s.transferName(a)
	case world.KindRequestArrives, world.KindReplyArrives:
		client := s.w.Conns[a-1]
		s.hashWaiting(h, client.Client, client.Incarnation, effects.Corr(b))
		a, b = s.connName(a), 0
	default: // Numbers of jobs, nodes, incarnations and grants mean the same in every history.
	}
	h.Word(a)
	h.Word(b)
	h.Word(c)
}
