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
	element    *list.Element
	list       *list.List
	timer      *time.Timer
	closeCause string

	hadWork    atomic.Bool  // AddWork was called
	active     atomic.Bool  // worked since the connection was last considered for eviction
	operations atomic.Int32 // operations in progress
}

// MarkKnown records that the peer speaks our protocol. From then on the connection may be idle.
func (c *Conn) MarkKnown() {
	c.door.mu.Lock()
	defer c.door.mu.Unlock()
	h := c.door.addresses[c.Address]
	if c.element == nil || c.list != &h.strangers {
		return
	}
	c.timer.Stop()
	c.moveTo(&h.known)
}

func (c *Conn) moveTo(rank *list.List) {
	if c.element != nil {
		c.list.Remove(c.element)
	}
	c.element, c.list = rank.PushBack(c), rank
}

// AddWork records that an operation for the connection begins (1) or has ended (-1). While operations are in progress,
// the connection is not closed in favour of a new connection. A connection that never had an operation is closed
// before a connection that had an operation, because a handshake alone costs a peer nothing.
func (c *Conn) AddWork(more int32) {
	c.active.Store(true)
	c.operations.Add(more)
	if c.hadWork.Swap(true) {
		return
	}
	c.door.mu.Lock()
	defer c.door.mu.Unlock()
	if c.element != nil {
		c.timer.Stop()
		c.moveTo(&c.door.addresses[c.Address].active)
	}
}

func (c *Conn) closeReason() string {
	c.door.mu.Lock()
	defer c.door.mu.Unlock()
	return c.closeCause
}

// addressConns are the connections of an address.
type addressConns struct {
	strangers, known, active list.List // of *Conn, by the time when the connection came or was last found active
}

func (h *addressConns) lists() []*list.List { return []*list.List{&h.strangers, &h.known, &h.active} }

func (h *addressConns) count() int { return h.strangers.Len() + h.known.Len() + h.active.Len() }

func (h *addressConns) allConns() iter.Seq[*Conn] {
	return func(yield func(*Conn) bool) {
		for _, l := range h.lists() {
			for e := l.Front(); e != nil; e = e.Next() {
				if !yield(e.Value.(*Conn)) {
					return
				}
			}
		}
	}
}

// idlestConn returns the address's connection to close when room is needed, or nil if all of its connections have an
// operation in progress.
func (h *addressConns) idlestConn() *Conn {
	for _, rank := range []*list.List{&h.strangers, &h.known} {
		if e := rank.Front(); e != nil {
			return e.Value.(*Conn)
		}
	}
	// Two rounds, because in the first round all connections may have been active since the last eviction.
	for range 2 * h.active.Len() {
		e := h.active.Front()
		g := e.Value.(*Conn)
		if g.operations.Load() <= 0 && !g.active.Swap(false) {
			return g
		}
		h.active.MoveToBack(e)
	}
	return nil
}

// placeConn gives c a place, if necessary by closing another connection.
func (d *Door) placeConn(c *Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closing {
		return false
	}
	h := d.addresses[c.Address]
	if h == nil {
		h = &addressConns{}
	}
	switch {
	case h.strangers.Len() >= d.config.MaxStrangers:
		d.evictConn(h.strangers.Front().Value.(*Conn), "a connection that sent nothing was closed in favour of a new "+
			"connection of the same address")
	case h.count() >= d.config.MaxPerAddress:
		if !d.evictConn(h.idlestConn(), "an idle connection was closed in favour of a new connection of the same address") {
			return false
		}
	case d.stats.Open >= d.config.MaxTotal:
		if !d.evictConn(d.idlestConn(), "a connection of the address with the most connections was closed in favour of a new "+
			"connection") {
			return false
		}
	}
	d.addresses[c.Address] = h // An eviction may have removed the entry from the map.
	c.moveTo(&h.strangers)
	c.timer = time.AfterFunc(d.config.HandshakeTimeout, func() { d.expireConn(c) })
	d.stats.Open++
	d.stats.Admitted++
	c.number = d.stats.Admitted
	return true
}

// idlestConn returns the connection to close when room is needed, or nil if all connections have an operation in
// progress.
//
// Connections that have sent nothing, or have only completed a handshake, are closed before all the rest, whatever
// their address: a host may have any number of addresses, each with fewer connections than an honest host. Of these
// two groups the larger group is chosen, so that a new connection has time in both groups; and of that group the
// oldest connection of the address with the most connections.
func (d *Door) idlestConn() *Conn {
	var strangers, known *list.List
	more := 0 // strangers than known ones
	for _, h := range d.addresses {
		more += h.strangers.Len() - h.known.Len()
		if closesBefore(&h.strangers, strangers) {
			strangers = &h.strangers
		}
		if closesBefore(&h.known, known) {
			known = &h.known
		}
	}
	switch {
	case strangers != nil && more >= 0:
		return strangers.Front().Value.(*Conn)
	case known != nil:
		return known.Front().Value.(*Conn)
	}
	bySize := func(a, b *addressConns) int { return cmp.Compare(b.count(), a.count()) }
	for _, h := range slices.SortedFunc(maps.Values(d.addresses), bySize) {
		if c := h.idlestConn(); c != nil {
			return c
		}
	}
	return nil
}

// closesBefore reports whether a connection of a is closed before a connection of b. B may be nil.
func closesBefore(a, b *list.List) bool {
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

func (d *Door) evictConn(c *Conn, cause string) bool {
	if c == nil {
		d.stats.Refused++
		return false
	}
	d.stats.Evicted++
	d.removeConn(c, cause)
	return true
}

func (d *Door) expireConn(c *Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c.element != nil && c.list == &d.addresses[c.Address].strangers {
		d.stats.Expired++
		d.removeConn(c, "a connection was closed because it completed no handshake in time")
	}
}

// removeConn removes a connection from its list and closes the connection, which ends the connection's goroutine.
func (d *Door) removeConn(c *Conn, cause string) {
	h := d.addresses[c.Address]
	c.list.Remove(c.element)
	c.timer.Stop()
	c.element, c.closeCause = nil, cause
	if h.count() == 0 {
		delete(d.addresses, c.Address)
	}
	d.stats.Open--
	_ = c.Close()
}

func (d *Door) leaveConn(c *Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c.element != nil {
		d.removeConn(c, "")
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
