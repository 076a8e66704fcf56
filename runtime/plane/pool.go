package plane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane/backing"
)

// PageBytesMax is the size in bytes of the largest page that a pool may have: lengths are 32 bits wide.
const PageBytesMax = 1<<32 - 1

// A Pool is the memory of a pool of a node, together with the fences of the pages. The machine decides what happens to
// each page; the pool carries out Publish, Grant and Revoke, and makes sure that no plane stores or reads without a
// grant.
//
// The memory consists of two sealed memfds: the first holds the pages in order, the second holds the generation of
// each page as 64 bits in the machine's byte order. Peers on this host map both read-only. The pages of an attachable
// pool, and nothing else of the pool, may also be mapped writable by the process that is given [Pool.Attachable].
//
// A Pool is safe for concurrent use.
type Pool struct {
	id        effects.PoolID
	buffer    effects.BufferID
	pages     uint32
	pageBytes uint64
	sink      Sink

	pagesFile       *os.File // the pages
	pagesMem        []byte
	peerFile        *os.File // the pages for peers: the same file, or the same memory opened read-only if attachable
	verifier        *Verifier
	attachable      bool
	filler          *tableFiller // fills the page tables of mem; nil if nothing fills them
	generationsFile *os.File
	generationsMem  []byte
	generations     []uint64 // the generation of each page, in generationsMem

	fences []pageFence // the fence of each page

	mu          sync.Mutex
	lastTurn    turn // the turn of the newest write grant
	grants      map[effects.GrantID]*writeGrant
	leases      map[effects.GrantID]*readLease
	pageStates  []pageState                 // what each page is granted for
	readPermits *readPermits                // what peers on this host may read
	linksOfPeer map[effects.Incarnation]int // number of links that each peer has opened to us, over all planes
	closed      bool
}

// PoolConfig describes a Pool.
type PoolConfig struct {
	ID        effects.PoolID
	Buffer    effects.BufferID // the pool's name on the wire, chosen by the rank
	Pages     uint32
	PageBytes uint64
	Sink      Sink // receives Revoked and Landed
	// Overcommit allocates the memory of a page when the page is first touched. If the host has no memory left at that
	// moment, the kernel kills a process, perhaps this process.
	Overcommit bool
	// Lock keeps the pages from being swapped out. NewPool fails with a *backing.LockShortage if this process may not
	// lock as much memory.
	Lock bool
	// Huge places the pages in huge pages of the host. NewPool fails with a *backing.HugeShortage if the host has too
	// few.
	Huge bool
	// Verifier compares what peers store, and what planes read, with the checksums that were stated; nil: nothing does.
	Verifier *Verifier
	// Attachable lets the process of the engine that the pool is for map the pages and store into the pages.
	Attachable bool
}

// NewPool creates a pool and allocates all of the memory, which takes a good part of a second for each GiB. All pages
// start in generation zero, which no page in use ever has. NewPool fails with a *backing.Shortage if the host has too
// little memory.
func NewPool(c PoolConfig) (*Pool, error) { return NewPoolWithin(context.Background(), c) }

// NewPoolWithin is like NewPool, but gives up when ctx ends.
func NewPoolWithin(ctx context.Context, c PoolConfig) (*Pool, error) {
	size, err := poolBytes(c.Pages, c.PageBytes)
	if err != nil {
		return nil, err
	}
	if c.Sink == nil {
		return nil, fmt.Errorf("%w: the pool's sink is missing", ErrInvalid)
	}
	p := &Pool{id: c.ID, buffer: c.Buffer, pages: c.Pages, pageBytes: c.PageBytes, sink: c.Sink, verifier: c.Verifier,
		attachable: c.Attachable}
	if err := p.allocateMemory(ctx, size, &c); err != nil {
		return nil, errors.Join(err, p.freeMemory())
	}
	p.fences, p.pageStates = make([]pageFence, c.Pages), make([]pageState, c.Pages)
	p.linksOfPeer = map[effects.Incarnation]int{}
	p.grants, p.leases = map[effects.GrantID]*writeGrant{}, map[effects.GrantID]*readLease{}
	// Locked memory has been filled already.
	if !c.Overcommit && !c.Lock {
		p.filler = startTableFiller(p.pagesMem, populateTables)
	}
	return p, nil
}

// allocateMemory maps the memory of the pool. After an error some of the memory is allocated, and the caller must free
// that memory.
func (p *Pool) allocateMemory(ctx context.Context, size uint64, c *PoolConfig) (err error) {
	p.pagesFile, p.pagesMem, err = backing.Memfd{Name: "kvferry-pool", Bytes: size, Overcommit: c.Overcommit,
		Huge: c.Huge, Writable: p.attachable}.CreateAndMap(ctx)
	if err != nil {
		return err
	}
	if c.Lock {
		if err = backing.LockMemory(p.pagesMem); err != nil {
			return err
		}
	}
	if p.peerFile = p.pagesFile; p.attachable {
		if p.peerFile, err = backing.ReadOnly(p.pagesFile); err != nil {
			return err
		}
	}
	p.generationsFile, p.generationsMem, err = newSegment(ctx, "kvferry-generations", generationsBytes(p.pages), c.Overcommit)
	if err != nil {
		return err
	}
	p.generations = generationsOf(p.generationsMem, p.pages)
	p.readPermits, err = newReadPermits(p.pages)
	return err
}

// Verifier returns what compares pages with their checksums; nil if nothing does.
func (p *Pool) Verifier() *Verifier { return p.verifier }

// Buffer describes the pool as peers name it.
func (p *Pool) Buffer() effects.Buffer {
	return effects.Buffer{ID: p.buffer, Pages: p.pages, PageBytes: p.pageBytes}
}

// PagesFile returns the file of the pages, to be sent to peers, which cannot map the file writable. Page i begins at
// offset i × PageBytes. The file belongs to the pool.
func (p *Pool) PagesFile() *os.File { return p.peerFile }

// GenerationsFile returns the file of the pages' generations, to be sent to peers along with the file of the pages. The
// file belongs to the pool.
func (p *Pool) GenerationsFile() *os.File { return p.generationsFile }

// Attachable returns the file of the pages for the attached engine's process, which may map the file writable, or nil
// if the pool is not attachable. The file belongs to the pool.
func (p *Pool) Attachable() *os.File {
	if !p.attachable {
		return nil
	}
	return p.pagesFile
}

// ReadPermitsFile returns the file of the read permits, to be sent to peers that read the pool without the owner's
// help. The file belongs to the pool.
func (p *Pool) ReadPermitsFile() *os.File { return p.readPermits.file }

// Bytes returns the valid bytes of a page. Only the component that owns the page at this moment, by the machine's
// decision, may touch these bytes. The slice must not be used after Close.
func (p *Pool) Bytes(page effects.Page) []byte {
	p.mustHavePage(page)
	return p.wholePage(page.Index)[:page.Length]
}

// PageRange returns the memory of count consecutive pages, for an engine that computes in the pool. The rules of Bytes
// apply.
func (p *Pool) PageRange(first, count uint32) []byte {
	if uint64(first)+uint64(count) > uint64(p.pages) {
		panic(fmt.Sprintf("BUG: a range of %d pages beginning at page %d exceeds a pool of %d pages", count, first, p.pages))
	}
	start := uint64(first) * p.pageBytes
	end := start + uint64(count)*p.pageBytes
	return p.pagesMem[start:end:end]
}

func (p *Pool) wholePage(index uint32) []byte { return pageOf(p.pagesMem, p.pageBytes, index) }

// Publish announces new generations of pages to every reader. Publish must precede the first store into a page under
// the new generation (rule M2).
func (p *Pool) Publish(pages []effects.Page) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, page := range pages {
		p.mustHavePage(page)
		if n := p.pageStates[page.Index].readLeases; n > 0 {
			panic(fmt.Sprintf("BUG: page %d gets generation %d while %d read leases cover the page",
				page.Index, page.Generation, n))
		}
		publishWord(&p.generations[page.Index], uint64(page.Generation))
	}
}

// AddLink records that a peer has opened a link to this node, on any plane.
func (p *Pool) AddLink(peer effects.Incarnation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.linksOfPeer[peer]++
}

// RemoveLink records that a link of a peer has ended, and reports whether that was the peer's last link: only then can
// the peer request nothing any more. A peer that falls back from a plane to another plane keeps its grants.
func (p *Pool) RemoveLink(peer effects.Incarnation) (last bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.linksOfPeer[peer]--; p.linksOfPeer[peer] == 0 {
		delete(p.linksOfPeer, peer)
		return true
	}
	return false
}

// Close unmaps the pool. All planes must have been closed before, and no slice of Bytes may be used afterwards.
func (p *Pool) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	err := p.freeMemory()
	p.closed = p.pagesMem == nil && p.generationsMem == nil
	return err
}

// freeMemory releases all memory that was allocated for the pool. If memory cannot be unmapped, the files stay open.
func (p *Pool) freeMemory() error {
	p.filler.stopAndWait()
	for _, mem := range []*[]byte{&p.pagesMem, &p.generationsMem} {
		if *mem == nil {
			continue
		}
		if err := syscall.Munmap(*mem); err != nil {
			return fmt.Errorf("unmap the pool: %w", err)
		}
		*mem = nil
	}
	var errs []error
	for _, file := range []*os.File{p.pagesFile, p.generationsFile} {
		if file != nil {
			errs = append(errs, file.Close())
		}
	}
	if p.peerFile != nil && p.peerFile != p.pagesFile {
		errs = append(errs, p.peerFile.Close())
	}
	if p.readPermits != nil {
		errs = append(errs, p.readPermits.close())
	}
	return errors.Join(errs...)
}

// Has reports whether the pool has this page, with room for the page's length.
func (p *Pool) Has(page effects.Page) bool {
	return page.Pool == p.id && page.Index < p.pages && uint64(page.Length) <= p.pageBytes
}

func (p *Pool) mustHavePage(page effects.Page) {
	if !p.Has(page) {
		panic(fmt.Sprintf("BUG: the machine names page %d of pool %d with %d bytes; pool %d has %d pages of %d bytes",
			page.Index, page.Pool, page.Length, p.id, p.pages, p.pageBytes))
	}
}

// ID returns the pool's position in the machine's configuration.
func (p *Pool) ID() effects.PoolID { return p.id }
