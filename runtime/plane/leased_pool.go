package plane

import (
	"fmt"
	"math"
	"os"
	"slices"
	"sync"

	"github.com/kvferry/kvferry/effects"
)

// # Leased planes
//
// On a leased plane the peer's hardware makes the stores and loads, and this process cannot observe the hardware (M4).
// So there is no fence that a grant could open or close: a peer can reach the whole pool as long as the peer has a
// link. Two things keep order instead. The initiator's driver submits nothing without a grant and nothing after the
// grant's deadline, and the owner can expel a peer, that is, end the peer's link and prove that the peer's hardware
// can no longer reach the pool. A LeasedPool records which peer each grant was given to, so that Revoke knows which
// peer to expel. The pool also records which grants were revoked, so that a peer that connects again does not continue
// under a revoked grant.

// A Region is a range of memory that leased planes register with their hardware, either for peers to reach or for
// this node's own end of transfers.
type Region struct {
	Host  bool    // true: pinned memory of the host; false: memory of the device
	Base  uintptr // address of the first byte, on the device or in this process
	Bytes uint64
	// File is the memory as a file that begins at Base, for planes whose library runs in another process; nil if the
	// memory has no file.
	File *os.File
}

// An Expeller is a leased plane as the pool sees the plane.
type Expeller interface {
	// Expel ends every access of a peer to the pool. The plane calls gone once there is proof that no access is in
	// flight and none can follow under the grants given so far (M4); if the peer has no link, at once. There may never
	// be proof. Expel does not block. The gone function may be called from any goroutine, even before Expel returns.
	Expel(peer effects.Incarnation, gone func())
}

// A LeasedPool is the pool that leased planes serve. All methods are safe for concurrent use.
type LeasedPool struct {
	id          effects.PoolID
	buffer      effects.BufferID
	pages       uint32
	pageBytes   uint64
	firstRegion Region
	secondPool  SecondPool
	sink        Sink
	// verifier compares what planes have read with the checksums that were stated; nil: nothing does. bytes returns the
	// valid bytes of a page.
	verifier *Verifier
	bytes    func(effects.Page) []byte

	mu            sync.Mutex
	expellers     []Expeller
	grants        map[uint16]leasedGrant // by the low 16 bits of the grant's id, in which grants in force differ
	revokedGrants []leasedGrant          // the newest revoked grants, oldest first; at most MaxRevoked
	// droppedPeers are the peers with revoked grants that are no longer in the list of revoked grants. There are at
	// most MaxRevoked entries; beyond that allDropped is set, and stands for every peer.
	droppedPeers map[effects.Incarnation]struct{}
	allDropped   bool
}

// A leasedGrant records the peer that a grant was given to.
type leasedGrant struct {
	id   effects.GrantID
	peer effects.Incarnation
}

// MaxRevoked is the number of revoked grants that are recorded individually.
const MaxRevoked = 1024

// LeasedPoolConfig describes a LeasedPool.
type LeasedPoolConfig struct {
	ID        effects.PoolID
	Buffer    effects.BufferID // the pool's name on the wire, chosen by the rank
	Pages     uint32
	PageBytes uint64
	// Region is the pool's memory: page i begins at Base + i × PageBytes. The memory belongs to the caller and must
	// outlive all planes.
	Region Region
	// SecondPool is a second pool, which peers know by another buffer id. The zero value means that there is none.
	SecondPool SecondPool
	Sink       Sink // receives Revoked
}

// A SecondPool is a second pool that leased planes serve, with pages as large as the first pool's. Page numbers
// continue after the first pool's last page, so that within the node a page's number alone identifies the page. Peers
// name a page by the pool's buffer and the page's place in that pool.
type SecondPool struct {
	Buffer effects.BufferID
	Pages  uint32
	Region Region
}

// A ServedPool is a pool as peers reach it.
type ServedPool struct {
	effects.Buffer
	Region
}

// NewLeasedPool returns the bookkeeping of a leased pool. No memory is allocated for pages.
func NewLeasedPool(c LeasedPoolConfig) (*LeasedPool, error) {
	switch {
	case c.Sink == nil:
		return nil, fmt.Errorf("%w: the pool's sink is missing", ErrInvalid)
	case c.Pages == 0, c.PageBytes == 0, c.PageBytes > PageBytesMax, uint64(c.Pages) > c.Region.Bytes/c.PageBytes:
		return nil, fmt.Errorf("%w: %d pages of %d bytes in a region of %d bytes; configure at least one page and one byte, "+
			"and a region that holds all pages", ErrInvalid,
			c.Pages, c.PageBytes, c.Region.Bytes)
	case uint64(c.SecondPool.Pages) > c.SecondPool.Region.Bytes/c.PageBytes, c.SecondPool.Pages > math.MaxUint32-c.Pages,
		c.SecondPool.Pages > 0 && c.SecondPool.Buffer == c.Buffer:
		return nil, fmt.Errorf("%w: a second pool of %d pages of %d bytes in a region of %d bytes; the region must hold all "+
			"pages, and the buffer id must differ from the first pool's",
			ErrInvalid, c.SecondPool.Pages, c.PageBytes, c.SecondPool.Region.Bytes)
	}
	return &LeasedPool{
		id: c.ID, buffer: c.Buffer, pages: c.Pages, pageBytes: c.PageBytes, firstRegion: c.Region, secondPool: c.SecondPool,
		sink:   c.Sink,
		grants: map[uint16]leasedGrant{}, droppedPeers: map[effects.Incarnation]struct{}{},
	}, nil
}

// SetVerifier has planes compare what they read with the checksums that were stated. bytes returns the valid bytes of a
// page, which must be memory of this process. The call precedes the opening of planes.
func (l *LeasedPool) SetVerifier(v *Verifier, bytes func(effects.Page) []byte) {
	l.verifier, l.bytes = v, bytes
}

// ReadSums returns the local pages of a read of which a checksum was stated, each with that checksum, or nil if nothing
// is compared.
func (l *LeasedPool) ReadSums(pairs []effects.Pair) (pages []effects.Page) {
	for _, pair := range pairs {
		if page := pair.Local; l.verifier != nil && pair.Remote.Sum != 0 {
			page.Sum = pair.Remote.Sum
			pages = append(pages, page)
		}
	}
	return pages
}

// VerifyRead compares pages of ReadSums, which are read to the last byte, and reports whether all have their checksums.
func (l *LeasedPool) VerifyRead(pages []effects.Page) bool {
	same := true
	for _, page := range pages {
		same = l.verifier.Verify(page, l.bytes(page)) && same
	}
	return same
}

// ID returns the pool's position in the machine's configuration.
func (l *LeasedPool) ID() effects.PoolID { return l.id }

// Buffer describes the first pool as peers name it.
func (l *LeasedPool) Buffer() effects.Buffer {
	return effects.Buffer{ID: l.buffer, Pages: l.pages, PageBytes: l.pageBytes}
}

// FirstRegion returns the memory of the first pool.
func (l *LeasedPool) FirstRegion() Region { return l.firstRegion }

// Pools returns the pools that peers reach, with their memory: the first pool, and the second pool if there is one.
func (l *LeasedPool) Pools() []ServedPool {
	all := []ServedPool{{l.Buffer(), l.firstRegion}}
	if s := l.secondPool; s.Pages > 0 {
		all = append(all, ServedPool{effects.Buffer{ID: s.Buffer, Pages: s.Pages, PageBytes: l.pageBytes}, s.Region})
	}
	return all
}

// Regions returns all memory that planes must register, beginning with the first pool's.
func (l *LeasedPool) Regions() (all []Region) {
	for _, s := range l.Pools() {
		all = append(all, s.Region)
	}
	return all
}

// Has reports whether either pool has this page, with room for the page's length.
func (l *LeasedPool) Has(page effects.Page) bool {
	return page.Pool == l.id && page.Index < l.pages+l.secondPool.Pages && uint64(page.Length) <= l.pageBytes
}

// PageAddress returns the address at which a page begins.
func (l *LeasedPool) PageAddress(page effects.Page) uintptr {
	if !l.Has(page) {
		panic(fmt.Sprintf("BUG: the machine names page %d of pool %d with %d bytes; pool %d has %d pages of %d bytes",
			page.Index, page.Pool, page.Length, l.id, l.pages+l.secondPool.Pages, l.pageBytes))
	}
	if page.Index >= l.pages {
		return l.secondPool.Region.Base + uintptr(uint64(page.Index-l.pages)*l.pageBytes)
	}
	return l.firstRegion.Base + uintptr(uint64(page.Index)*l.pageBytes)
}

// AddExpeller adds a plane that serves the pool. Every later Revoke calls Expel of that plane.
func (l *LeasedPool) AddExpeller(expeller Expeller) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expellers = append(l.expellers, expeller)
}

// Publish does nothing: readers on leased planes go by time and not by generations.
func (l *LeasedPool) Publish([]effects.Page) {}

// Grant records which peer a grant was given to. A grant that names no peer admits nothing, because nobody could use
// the grant on these planes.
func (l *LeasedPool) Grant(e *effects.Grant) {
	if e.Peer == (effects.Incarnation{}) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.grants[uint16(e.ID)] = leasedGrant{e.ID, e.Peer}
}

// Revoke takes a grant back: the grant's peer is expelled, and one Revoked is posted when all planes have proof that
// the peer is gone. Without proof Revoked is never posted, and the pages stay in quarantine (M4).
func (l *LeasedPool) Revoke(id effects.GrantID) {
	l.mu.Lock()
	g := l.grants[uint16(id)]
	if g.id != id {
		l.mu.Unlock()
		l.sink.Post(&effects.Revoked{Grant: id})
		return
	}
	delete(l.grants, uint16(id))
	// Recorded before any plane expels the peer: a peer that connects again after that must learn of the revocation.
	l.recordRevoked(g)
	expellers := slices.Clone(l.expellers)
	l.mu.Unlock()

	pending := &countdown{remaining: len(expellers) + 1, onZero: func() { l.sink.Post(&effects.Revoked{Grant: id}) }}
	for _, expeller := range expellers {
		expeller.Expel(g.peer, pending.decrement)
	}
	pending.decrement()
}

func (l *LeasedPool) recordRevoked(r leasedGrant) {
	if len(l.revokedGrants) == MaxRevoked {
		l.dropRevoked(l.revokedGrants[0].peer)
		l.revokedGrants = append(l.revokedGrants[:0], l.revokedGrants[1:]...)
	}
	l.revokedGrants = append(l.revokedGrants, r)
}

func (l *LeasedPool) dropRevoked(peer effects.Incarnation) {
	if len(l.droppedPeers) == MaxRevoked {
		l.allDropped = true
		clear(l.droppedPeers)
	}
	if !l.allDropped {
		l.droppedPeers[peer] = struct{}{}
	}
}

// RevokedGrants returns the revoked grants of a peer. If more is true, further grants with ids that are no longer known
// were revoked, and the peer must treat all of its grants so far as revoked. A plane reports both results to a peer
// that connects, before the peer can reach the pool again.
func (l *LeasedPool) RevokedGrants(peer effects.Incarnation) (ids []effects.GrantID, more bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.revokedGrants {
		if r.peer == peer {
			ids = append(ids, r.id)
		}
	}
	_, more = l.droppedPeers[peer]
	return ids, more || l.allDropped
}

// Close does nothing: the memory belongs to the caller of NewLeasedPool.
func (l *LeasedPool) Close() error { return nil }

// A countdown calls onZero when decrement was called as often as the initial value of remaining.
type countdown struct {
	mu        sync.Mutex
	remaining int
	onZero    func()
}

func (c *countdown) decrement() {
	c.mu.Lock()
	c.remaining--
	last := c.remaining == 0
	c.mu.Unlock()
	if last {
		c.onZero()
	}
}
