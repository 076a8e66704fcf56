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

// A Guest is one connection that was admitted.
type Guest struct {
	net.Conn
	Address netip.Prefix // of its other end

	door   *Door
	number uint64 // of those that were admitted
	// What follows is the door's, under its lock.
	place  *list.Element // in rank, one of its house's
	rank   *list.List
	timer  *time.Timer
	reason string

	spoke   atomic.Bool
	active  atomic.Bool // since it was last looked at
	working atomic.Int32
}

// Known says that the other end speaks our protocol. It is let be idle from now on.
func (g *Guest) Known() {
	g.door.mu.Lock()
	defer g.door.mu.Unlock()
	h := g.door.houses[g.Address]
	if g.place == nil || g.rank != &h.strangers {
		return
	}
	g.timer.Stop()
	g.moveTo(&h.known)
}

func (g *Guest) moveTo(rank *list.List) {
	if g.place != nil {
		g.rank.Remove(g.place)
	}
	g.place, g.rank = rank.PushBack(g), rank
}

// Work says that something is done for the guest, or, with -1, that it is done: meanwhile the guest is not closed to
// make room for another one. Who was never worked for gives way to who was: a handshake alone is cheap.
func (g *Guest) Work(more int32) {
	g.active.Store(true)
	g.working.Add(more)
	if g.spoke.Swap(true) {
		return
	}
	g.door.mu.Lock()
	defer g.door.mu.Unlock()
	if g.place != nil {
		g.timer.Stop()
		g.moveTo(&g.door.houses[g.Address].spoken)
	}
}

func (g *Guest) why() string {
	g.door.mu.Lock()
	defer g.door.mu.Unlock()
	return g.reason
}

// A house is what one address has.
type house struct {
	strangers, known, spoken list.List // of *Guest, those that came or were found active first first
}

func (h *house) ranks() []*list.List { return []*list.List{&h.strangers, &h.known, &h.spoken} }

func (h *house) size() int { return h.strangers.Len() + h.known.Len() + h.spoken.Len() }

func (h *house) all() iter.Seq[*Guest] {
	return func(yield func(*Guest) bool) {
		for _, l := range h.ranks() {
			for e := l.Front(); e != nil; e = e.Next() {
				if !yield(e.Value.(*Guest)) {
					return
				}
			}
		}
	}
}

// idlest is the guest to close if one must go; nil if all are at work.
func (h *house) idlest() *Guest {
	for _, rank := range []*list.List{&h.strangers, &h.known} {
		if e := rank.Front(); e != nil {
			return e.Value.(*Guest)
		}
	}
	// Two rounds: the first may find all active since they were last looked at.
	for range 2 * h.spoken.Len() {
		e := h.spoken.Front()
		g := e.Value.(*Guest)
		if g.working.Load() <= 0 && !g.active.Swap(false) {
			return g
		}
		h.spoken.MoveToBack(e)
	}
	return nil
}

// enter gives g a place, if need be that of another one.
func (d *Door) enter(g *Guest) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closing {
		return false
	}
	h := d.houses[g.Address]
	if h == nil {
		h = &house{}
	}
	switch {
	case h.strangers.Len() >= d.config.Strangers:
		d.evict(h.strangers.Front().Value.(*Guest), "a connection that said nothing gives way to a new one of its address")
	case h.size() >= d.config.PerAddress:
		if !d.evict(h.idlest(), "an idle connection gives way to a new one of its address") {
			return false
		}
	case d.stats.Guests >= d.config.Total:
		if !d.evict(d.idlest(), "a connection of the address that has most gives way to a new one") {
			return false
		}
	}
	d.houses[g.Address] = h // An eviction may have removed it.
	g.moveTo(&h.strangers)
	g.timer = time.AfterFunc(d.config.Patience, func() { d.expire(g) })
	d.stats.Guests++
	d.stats.Admitted++
	g.number = d.stats.Admitted
	return true
}

// idlest is the guest to close if one must go; nil if all are at work. Who has said nothing, or has only shaken hands,
// goes before all others, wherever from: one host may have as many addresses as it likes, each with less than an honest
// one. Of these two it is of the one that there are more of, so that a newcomer has time for both; of that, the oldest
// of the address that has most of it.
func (d *Door) idlest() *Guest {
	var strangers, known *list.List
	more := 0 // strangers than known ones
	for _, h := range d.houses {
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
		return strangers.Front().Value.(*Guest)
	case known != nil:
		return known.Front().Value.(*Guest)
	}
	houses := slices.SortedFunc(maps.Values(d.houses), func(a, b *house) int { return cmp.Compare(b.size(), a.size()) })
	for _, h := range houses {
		if g := h.idlest(); g != nil {
			return g
		}
	}
	return nil
}

// before says whether one of a is to go before one of b, of which there may be none.
func before(a, b *list.List) bool {
	switch {
	case a.Len() == 0:
		return false
	case b == nil:
		return true
	case a.Len() != b.Len():
		return a.Len() > b.Len()
	}
	return a.Front().Value.(*Guest).number < b.Front().Value.(*Guest).number
}

func (d *Door) evict(g *Guest, why string) bool {
	if g == nil {
		d.stats.Refused++
		return false
	}
	d.stats.Evicted++
	d.remove(g, why)
	return true
}

func (d *Door) expire(g *Guest) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if g.place != nil && g.rank == &d.houses[g.Address].strangers {
		d.stats.Expired++
		d.remove(g, "a connection said nothing that makes sense in time")
	}
}

// remove takes a guest's place away and closes its connection; its goroutine ends by that.
func (d *Door) remove(g *Guest, why string) {
	h := d.houses[g.Address]
	g.rank.Remove(g.place)
	g.timer.Stop()
	g.place, g.reason = nil, why
	if h.size() == 0 {
		delete(d.houses, g.Address)
	}
	d.stats.Guests--
	_ = g.Close()
}

func (d *Door) leave(g *Guest) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if g.place != nil {
		d.remove(g, "")
	}
}

// addressOf is the address that a connection counts for.
func addressOf(a net.Addr) netip.Prefix {
	at, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	return HostOf(at.AddrPort().Addr())
}

// HostOf returns the addresses that count as one host with ip: of IPv6 all of its network of 64 bits.
func HostOf(ip netip.Addr) netip.Prefix {
	ip = ip.Unmap().WithZone("")
	bits := 32
	if ip.Is6() {
		bits = 64
	}
	p, _ := ip.Prefix(bits)
	return p
}
