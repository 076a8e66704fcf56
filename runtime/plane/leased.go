package plane

import (
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/kvferry/kvferry/effects"
)

// # Leased planes
//
// On a leased plane hardware of the peer stores and loads by itself, and nobody here can watch it. So there is nothing
// to open for a grant and nothing to close behind it: the pool is a peer's to reach from the link's beginning to its
// end, and what keeps order is the initiator's driver, which submits nothing that it has no grant for, and time. What
// is left to the owner is to expel a peer, link and all, and to prove that it is gone. A Leased knows whom each grant
// was given to, so that a Revoke finds whom to expel, and which grants were revoked, so that nobody who links again
// goes on with one.

// A Region is a stretch of memory that leased planes register, for peers to reach or for our own ends of transfers.
type Region struct {
	Host  bool    // pinned memory of the host; else the device's own
	Base  uintptr // address of its first byte, on the device or in this process
	Bytes uint64
}

// A Guard is a leased plane, as the pool sees it.
type Guard interface {
	// Expel ends every access of a peer to the pool and calls gone once there is proof that none is under way and none can
	// follow under what was granted so far: at once if the peer has no link. It may never come to that. Expel does not
	// block, and gone may be called from any goroutine, also before Expel returns.
	Expel(peer effects.Incarnation, gone func())
}

// A Leased is the pool that leased planes serve. Its methods are safe for concurrent use.
type Leased struct {
	id        effects.PoolID
	buffer    effects.BufferID
	pages     uint32
	pageBytes uint64
	served    Region
	second    Second
	sink      Sink

	mu      sync.Mutex
	guards  []Guard
	given   map[uint16]given // by the low bits of the grant's id, which no two that are in force have in common
	revoked []revoked        // the newest, oldest first; at most revokedMax
	// forgot are the peers of whom older ones are not known any more; at most revokedMax, or forgotAll.
	forgot    map[effects.Incarnation]struct{}
	forgotAll bool
}

type given struct {
	id   effects.GrantID
	peer effects.Incarnation
}

type revoked struct {
	id   effects.GrantID
	peer effects.Incarnation
}

// revokedMax is how many revoked grants are remembered one by one.
const revokedMax = 1024

// LeasedConfig describes a pool of leased planes.
type LeasedConfig struct {
	ID        effects.PoolID
	Buffer    effects.BufferID // its name on the wire, from the rank
	Pages     uint32
	PageBytes uint64
	// Served is the pool's memory: page i begins i × PageBytes behind Base. It stays the caller's, longer than all
	// planes.
	Served Region
	// Second is a pool beside that, which peers know by another name; the zero value is none.
	Second Second
	Sink   Sink // takes Revoked
}

// A Second is a second pool that leased planes serve, of pages as large as the first one's. Its first page has the number
// that follows the first pool's last: whoever names a page within the node names it by its number alone. Peers name it by
// the pool and its place there.
type Second struct {
	Buffer effects.BufferID
	Pages  uint32
	Region Region
}

// A Served is a pool as peers reach it.
type Served struct {
	effects.Buffer
	Region
}

// NewLeased makes the book of a pool.
func NewLeased(c LeasedConfig) (*Leased, error) {
	switch {
	case c.Sink == nil:
		return nil, fmt.Errorf("%w: the pool's sink is missing", ErrInvalid)
	case c.Pages == 0, c.PageBytes == 0, c.PageBytes > PageBytesMax, uint64(c.Pages) > c.Served.Bytes/c.PageBytes:
		return nil, fmt.Errorf("%w: %d pages of %d bytes in %d; give at least one of each, and memory for all", ErrInvalid,
			c.Pages, c.PageBytes, c.Served.Bytes)
	case uint64(c.Second.Pages) > c.Second.Region.Bytes/c.PageBytes, c.Second.Pages > math.MaxUint32-c.Pages,
		c.Second.Pages > 0 && c.Second.Buffer == c.Buffer:
		return nil, fmt.Errorf("%w: a second pool of %d pages of %d bytes in %d; give memory for all, and another name", ErrInvalid,
			c.Second.Pages, c.PageBytes, c.Second.Region.Bytes)
	}
	return &Leased{
		id: c.ID, buffer: c.Buffer, pages: c.Pages, pageBytes: c.PageBytes, served: c.Served, second: c.Second,
		sink:  c.Sink,
		given: map[uint16]given{}, forgot: map[effects.Incarnation]struct{}{},
	}, nil
}

// ID is the pool's position in the machine's configuration.
func (l *Leased) ID() effects.PoolID { return l.id }

// Buffer describes the pool as peers see it.
func (l *Leased) Buffer() effects.Buffer {
	return effects.Buffer{ID: l.buffer, Pages: l.pages, PageBytes: l.pageBytes}
}

// Served is the pool's memory.
func (l *Leased) Served() Region { return l.served }

// All are the pools that peers reach, with their memory: the first, and the second if there is one.
func (l *Leased) All() []Served {
	all := []Served{{l.Buffer(), l.served}}
	if s := l.second; s.Pages > 0 {
		all = append(all, Served{effects.Buffer{ID: s.Buffer, Pages: s.Pages, PageBytes: l.pageBytes}, s.Region})
	}
	return all
}

// Regions are all that planes register, those that peers reach first.
func (l *Leased) Regions() (all []Region) {
	for _, s := range l.All() {
		all = append(all, s.Region)
	}
	return all
}

// Has reports whether either pool has such a page with so many bytes.
func (l *Leased) Has(page effects.Page) bool {
	return page.Pool == l.id && page.Index < l.pages+l.second.Pages && uint64(page.Length) <= l.pageBytes
}

// Address is where a page begins.
func (l *Leased) Address(page effects.Page) uintptr {
	if !l.Has(page) {
		panic(fmt.Sprintf("BUG: the machine speaks of page %d of pool %d with %d bytes; pool %d has %d pages of %d bytes",
			page.Index, page.Pool, page.Length, l.id, l.pages+l.second.Pages, l.pageBytes))
	}
	if page.Index >= l.pages {
		return l.second.Region.Base + uintptr(uint64(page.Index-l.pages)*l.pageBytes)
	}
	return l.served.Base + uintptr(uint64(page.Index)*l.pageBytes)
}

// Protect adds a plane that serves the pool; every Revoke asks it from then on.
func (l *Leased) Protect(g Guard) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.guards = append(l.guards, g)
}

// Publish has nothing to tell: whoever reads here looks at the time, not at generations.
func (l *Leased) Publish([]effects.Page) {}

// Grant notes whose a grant is. A grant without a peer opens nothing: nobody on these planes could present it.
func (l *Leased) Grant(e *effects.Grant) {
	if e.Peer == (effects.Incarnation{}) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.given[uint16(e.ID)] = given{e.ID, e.Peer}
}

// Revoke takes a grant back: it expels the peer that has it, and posts one Revoked when all planes have proof that it
// is gone.
func (l *Leased) Revoke(id effects.GrantID) {
	l.mu.Lock()
	g := l.given[uint16(id)]
	if g.id != id {
		l.mu.Unlock()
		l.sink.Post(&effects.Revoked{Grant: id})
		return
	}
	delete(l.given, uint16(id))
	// Before anybody is expelled: who links again after that hears of it.
	l.remember(revoked{id, g.peer})
	guards := slices.Clone(l.guards)
	l.mu.Unlock()

	left := &countdown{n: len(guards) + 1, zero: func() { l.sink.Post(&effects.Revoked{Grant: id}) }}
	for _, guard := range guards {
		guard.Expel(g.peer, left.down)
	}
	left.down()
}

func (l *Leased) remember(r revoked) {
	if len(l.revoked) == revokedMax {
		l.forget(l.revoked[0].peer)
		l.revoked = append(l.revoked[:0], l.revoked[1:]...)
	}
	l.revoked = append(l.revoked, r)
}

func (l *Leased) forget(peer effects.Incarnation) {
	if len(l.forgot) == revokedMax {
		l.forgotAll = true
		clear(l.forgot)
	}
	if !l.forgotAll {
		l.forgot[peer] = struct{}{}
	}
}

// Revoked are the grants of a peer that were taken back. More says that there were others, which are not known any
// more: then every grant that was given so far counts as taken back. A plane tells a peer that links, before it can
// reach the pool again.
func (l *Leased) Revoked(peer effects.Incarnation) (ids []effects.GrantID, more bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.revoked {
		if r.peer == peer {
			ids = append(ids, r.id)
		}
	}
	_, more = l.forgot[peer]
	return ids, more || l.forgotAll
}

// Close has nothing to give back: the memory is whose it was.
func (l *Leased) Close() error { return nil }

// A countdown calls zero when it has been told so often.
type countdown struct {
	mu   sync.Mutex
	n    int
	zero func()
}

func (c *countdown) down() {
	c.mu.Lock()
	c.n--
	last := c.n == 0
	c.mu.Unlock()
	if last {
		c.zero()
	}
}
