package door

import (
	"cmp"
	"container/list"
	"iter"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"
)

// A Conn is an admitted connection.
type Conn struct {
	net.Conn
	Address netip.Prefix // the address that the connection counts for

	door   *Door
	number uint64 // counts admitted connections
	// The following fields are guarded by the door's mutex. Invariant: element is an element of list, which is a list
	// of the address's connections; element is nil after the connection was removed.
	place  *list.Element
	rank   *list.List
	timer  *time.Timer
	reason string

	hadWork atomic.Bool  // AddWork was called
	active  atomic.Bool  // worked since the connection was last considered for eviction
	working atomic.Int32 // operations in progress
}

// MarkKnown records that the peer speaks our protocol. From then on the connection may be idle.
func (g *Conn) MarkKnown() {
	g.door.mu.Lock()
	defer g.door.mu.Unlock()
	h := g.door.addresses[g.Address]
	if g.place == nil || g.rank != &h.strangers {
		return
	}
	g.timer.Stop()
	g.moveTo(&h.known)
}

func (g *Conn) moveTo(rank *list.List) {
	if g.place != nil {
		g.rank.Remove(g.place)
	}
	g.place, g.rank = rank.PushBack(g), rank
}

// AddWork records that an operation for the connection begins (1) or has ended (-1). While operations are in progress,
// the connection is not closed in favour of a new connection. A connection that never had an operation is closed
// before a connection that had an operation, because a handshake alone costs a peer nothing.
func (g *Conn) AddWork(more int32) {
	g.active.Store(true)
	g.working.Add(more)
	if g.hadWork.Swap(true) {
		return
	}
	g.door.mu.Lock()
	defer g.door.mu.Unlock()
	if g.place != nil {
		g.timer.Stop()
		g.moveTo(&g.door.addresses[g.Address].active)
	}
}

func (g *Conn) closeReason() string {
	g.door.mu.Lock()
	defer g.door.mu.Unlock()
	return g.reason
}

// addressConns are the connections of an address.
type addressConns struct {
	strangers, known, active list.List // of *Conn, by the time when the connection came or was last found active
}

func (h *addressConns) ranks() []*list.List { return []*list.List{&h.strangers, &h.known, &h.active} }

func (h *addressConns) size() int { return h.strangers.Len() + h.known.Len() + h.active.Len() }

func (h *addressConns) all() iter.Seq[*Conn] {
	return func(yield func(*Conn) bool) {
		for _, l := range h.ranks() {
			for e := l.Front(); e != nil; e = e.Next() {
				if !yield(e.Value.(*Conn)) {
					return
				}
			}
		}
	}
}

// idlest returns the connection to close when room is needed, or nil if all connections have an operation in progress.
func (h *addressConns) idlest() *Conn {
	for _, rank := range []*list.List{&h.strangers, &h.known} {
		if e := rank.Front(); e != nil {
			return e.Value.(*Conn)
		}
	}
	// Two rounds, because in the first round all connections may have been active since the last eviction.
	for range 2 * h.active.Len() {
		e := h.active.Front()
		g := e.Value.(*Conn)
		if g.working.Load() <= 0 && !g.active.Swap(false) {
			return g
		}
		h.active.MoveToBack(e)
	}
	return nil
}

// enter gives g a place, if necessary by closing another connection.
func (d *Door) enter(g *Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closing {
		return false
	}
	h := d.addresses[g.Address]
	if h == nil {
		h = &addressConns{}
	}
	switch {
	case h.strangers.Len() >= d.config.Strangers:
		d.evict(h.strangers.Front().Value.(*Conn), "a connection that sent nothing gives way to a new one of its address")
	case h.size() >= d.config.PerAddress:
		if !d.evict(h.idlest(), "an idle connection gives way to a new one of its address") {
			return false
		}
	case d.stats.Open >= d.config.Total:
		if !d.evict(d.idlest(), "a connection of the address that has most gives way to a new one") {
			return false
		}
	}
	d.addresses[g.Address] = h // An eviction may have removed the entry from the map.
	g.moveTo(&h.strangers)
	g.timer = time.AfterFunc(d.config.Patience, func() { d.expire(g) })
	d.stats.Open++
	d.stats.Admitted++
	g.number = d.stats.Admitted
	return true
}

// idlest returns the connection to close when room is needed, or nil if all connections have an operation in progress.
//
// Connections that have sent nothing, or have only completed a handshake, are closed before all the rest, whatever
// their address: a host may have any number of addresses, each with fewer connections than an honest host. Of these
// two groups the larger group is chosen, so that a new connection has time in both groups; and of that group the
// oldest connection of the address with the most connections.
func (d *Door) idlest() *Conn {
	var strangers, known *list.List
	more := 0 // strangers than known ones
	for _, h := range d.addresses {
		more += h.strangers.Len() - h.known.Len()
		if before(&h.strangers, strangers) {
			strangers = &h.strangers
		}
		if before(&h.known, known) {
			known = &h.known
		}
	}
	switch {
	case strangers != nil && more >= 0:
		return strangers.Front().Value.(*Conn)
	case known != nil:
		return known.Front().Value.(*Conn)
	}
	bySize := func(a, b *addressConns) int { return cmp.Compare(b.size(), a.size()) }
	for _, h := range slices.SortedFunc(maps.Values(d.addresses), bySize) {
		if g := h.idlest(); g != nil {
			return g
		}
	}
	return nil
}

// before reports whether a connection of a is closed before a connection of b. B may be nil.
func before(a, b *list.List) bool {
	switch {
	case a.Len() == 0:
		return false
	case b == nil:
		return true
	case a.Len() != b.Len():
		return a.Len() > b.Len()
	}
	return a.Front().Value.(*Conn).number < b.Front().Value.(*Conn).number
}

func (d *Door) evict(g *Conn, why string) bool {
	if g == nil {
		d.stats.Refused++
		return false
	}
	d.stats.Evicted++
	d.remove(g, why)
	return true
}

func (d *Door) expire(g *Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if g.place != nil && g.rank == &d.addresses[g.Address].strangers {
		d.stats.Expired++
		d.remove(g, "a connection sent nothing that makes sense in time")
	}
}

// remove removes a connection from its list and closes the connection, which ends the connection's goroutine.
func (d *Door) remove(g *Conn, why string) {
	h := d.addresses[g.Address]
	g.rank.Remove(g.place)
	g.timer.Stop()
	g.place, g.reason = nil, why
	if h.size() == 0 {
		delete(d.addresses, g.Address)
	}
	d.stats.Open--
	_ = g.Close()
}

func (d *Door) leave(g *Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if g.place != nil {
		d.remove(g, "")
	}
}

// addressOf returns the address that a connection counts for.
func addressOf(a net.Addr) netip.Prefix {
	at, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	return HostOf(at.AddrPort().Addr())
}

// HostOf returns the addresses that count as the same host as ip: an IPv4 address, or the 64-bit network of an IPv6
// address.
func HostOf(ip netip.Addr) netip.Prefix {
	ip = ip.Unmap().WithZone("")
	bits := 32
	if ip.Is6() {
		bits = 64
	}
	p, _ := ip.Prefix(bits)
	return p
}
