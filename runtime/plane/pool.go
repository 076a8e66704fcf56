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

// PageBytesMax is the largest page of a pool: lengths are 32 bits wide.
const PageBytesMax = 1<<32 - 1

// A Pool is one pool's memory with its fences. The machine decides what happens to pages; the pool
// carries out Publish, Grant and Revoke, and holds every plane to them.
//
// The memory is two sealed memfds: the pages, one behind the other, and the generation of each, 64 bits in the byte
// order of the machine. Peers on this host map both read-only. An attachable pool's pages, and nothing else of it, may
// be mapped writable by who is given [Pool.Attachable].
type Pool struct {
	id        effects.PoolID
	buffer    effects.BufferID
	pages     uint32
	pageBytes uint64
	sink      Sink

	file       *os.File // the pages
	mem        []byte
	peers      *os.File // the pages as peers get them: file, or in an attachable pool file opened to read
	attachable bool
	filling    *filling // of mem's page tables; nil: they are not filled
	tableFile  *os.File
	tableMem   []byte
	table      []uint64 // the generation of each page

	words []word // the fence of each page

	mu       sync.Mutex
	turns    turn // of the newest grant to store
	grants   map[effects.GrantID]*grant
	lendings map[effects.GrantID]*lending
	slots    []slot                      // what each page is granted for
	reads    *readPermits                // what peers of this host may read
	links    map[effects.Incarnation]int // links that peers opened to us, on all planes
	closed   bool
}

// PoolConfig describes a pool.
type PoolConfig struct {
	ID        effects.PoolID
	Buffer    effects.BufferID // its name on the wire, from the rank
	Pages     uint32
	PageBytes uint64
	Sink      Sink // takes Revoked and Landed
	// Overcommit takes memory when a page is first touched. If there is none then, the kernel kills the process, or
	// another.
	Overcommit bool
	// Lock keeps the pages from being swapped out. A *backing.Unlocked says that this process may not lock so much.
	Lock bool
	// Huge has the pages lie in huge pages of the host. A *backing.HugeShortage says that there are not so many.
	Huge bool
	// Attachable lets another process map the pages, and store into them: an engine's that this pool is for.
	Attachable bool
}

// NewPool allocates a pool and takes its memory, all of it, which takes a good part of a second for each GiB. All pages
// start in generation zero, which no page ever has in use. A *backing.Shortage says that there is not so much memory.
func NewPool(c PoolConfig) (*Pool, error) { return NewPoolWithin(context.Background(), c) }

// NewPoolWithin is NewPool for as long as ctx lasts.
func NewPoolWithin(ctx context.Context, c PoolConfig) (*Pool, error) {
	size, err := poolBytes(c.Pages, c.PageBytes)
	if err != nil {
		return nil, err
	}
	if c.Sink == nil {
		return nil, fmt.Errorf("%w: the pool's sink is missing", ErrInvalid)
	}
	p := &Pool{id: c.ID, buffer: c.Buffer, pages: c.Pages, pageBytes: c.PageBytes, sink: c.Sink, attachable: c.Attachable}
	if err := p.take(ctx, size, &c); err != nil {
		return nil, errors.Join(err, p.giveBack())
	}
	p.words, p.slots = make([]word, c.Pages), make([]slot, c.Pages)
	p.links = map[effects.Incarnation]int{}
	p.grants, p.lendings = map[effects.GrantID]*grant{}, map[effects.GrantID]*lending{}
	if !c.Overcommit && !c.Lock { // What is locked has been filled.
		p.filling = startFilling(p.mem, fillTables)
	}
	return p, nil
}

// take gets the memory. After an error some of it is there.
func (p *Pool) take(ctx context.Context, size uint64, c *PoolConfig) (err error) {
	p.file, p.mem, err = backing.Memfd{Name: "kvferry-pool", Bytes: size, Overcommit: c.Overcommit,
		Huge: c.Huge, Writable: p.attachable}.Take(ctx)
	if err != nil {
		return err
	}
	if c.Lock {
		if err = backing.Lock(p.mem); err != nil {
			return err
		}
	}
	if p.peers = p.file; p.attachable {
		if p.peers, err = backing.ReadOnly(p.file); err != nil {
			return err
		}
	}
	if p.tableFile, p.tableMem, err = newSegment(ctx, "kvferry-generations", tableBytes(p.pages), c.Overcommit); err != nil {
		return err
	}
	p.table = tableOf(p.tableMem, p.pages)
	p.reads, err = newReadPermits(p.pages)
	return err
}

// Buffer describes the pool as peers see it.
func (p *Pool) Buffer() effects.Buffer {
	return effects.Buffer{ID: p.buffer, Pages: p.pages, PageBytes: p.pageBytes}
}

// File is the pages as a file, to be sent to peers: nobody maps it writable. Page i begins i × PageBytes behind its
// start. It is the pool's.
func (p *Pool) File() *os.File { return p.peers }

// Generations is the generation of each page as a file, to be sent to peers with File. It is the pool's.
func (p *Pool) Generations() *os.File { return p.tableFile }

// Attachable is the pages as a file that who is given it may map writable; nil if the pool is not attachable. It is
// the pool's.
func (p *Pool) Attachable() *os.File {
	if !p.attachable {
		return nil
	}
	return p.file
}

// ReadsFile is what peers may read, as a file to be sent to those that read by themselves. It is the pool's.
func (p *Pool) ReadsFile() *os.File { return p.reads.file }

// Host returns the valid bytes of a page: memory of the pool, to be touched only by who owns the page
// by the machine's word. The slice must not be used after Close.
func (p *Pool) Host(page effects.Page) []byte {
	p.mustHave(page)
	return p.bytes(page.Index)[:page.Length]
}

// Stretch returns the memory of count pages that lie one behind the other, for an engine whose pool this is. It is like
// Host's.
func (p *Pool) Stretch(first, count uint32) []byte {
	if uint64(first)+uint64(count) > uint64(p.pages) {
		panic(fmt.Sprintf("BUG: %d pages from %d on of a pool of %d", count, first, p.pages))
	}
	start := uint64(first) * p.pageBytes
	end := start + uint64(count)*p.pageBytes
	return p.mem[start:end:end]
}

func (p *Pool) bytes(index uint32) []byte { return pageOf(p.mem, p.pageBytes, index) }

// Publish makes new lives of pages known to every reader before their first store.
func (p *Pool) Publish(pages []effects.Page) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, page := range pages {
		p.mustHave(page)
		if n := p.slots[page.Index].lent; n > 0 {
			panic(fmt.Sprintf("BUG: page %d gets generation %d while %d grants to read cover it",
				page.Index, page.Generation, n))
		}
		publish(&p.table[page.Index], uint64(page.Generation))
	}
}

// Linked notes a link that a peer opened, on any plane.
func (p *Pool) Linked(peer effects.Incarnation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.links[peer]++
}

// Unlinked notes that one has ended, and reports whether it was the peer's last: only then can it ask for nothing any
// more. One that falls back from one plane to another keeps what it was granted.
func (p *Pool) Unlinked(peer effects.Incarnation) (last bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.links[peer]--; p.links[peer] == 0 {
		delete(p.links, peer)
		return true
	}
	return false
}

// Close unmaps the pool. All planes must have been closed, and no slice of Host may be used any more.
func (p *Pool) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	err := p.giveBack()
	p.closed = p.mem == nil && p.tableMem == nil
	return err
}

// giveBack ends what take got, as far as it came. What cannot be unmapped keeps its files.
func (p *Pool) giveBack() error {
	p.filling.end()
	for _, mem := range []*[]byte{&p.mem, &p.tableMem} {
		if *mem == nil {
			continue
		}
		if err := syscall.Munmap(*mem); err != nil {
			return fmt.Errorf("unmap the pool: %w", err)
		}
		*mem = nil
	}
	var errs []error
	for _, file := range []*os.File{p.file, p.tableFile} {
		if file != nil {
			errs = append(errs, file.Close())
		}
	}
	if p.peers != nil && p.peers != p.file {
		errs = append(errs, p.peers.Close())
	}
	if p.reads != nil {
		errs = append(errs, p.reads.close())
	}
	return errors.Join(errs...)
}

// Has reports whether the pool has such a page with so many bytes.
func (p *Pool) Has(page effects.Page) bool {
	return page.Pool == p.id && page.Index < p.pages && uint64(page.Length) <= p.pageBytes
}

func (p *Pool) mustHave(page effects.Page) {
	if !p.Has(page) {
		panic(fmt.Sprintf("BUG: the machine speaks of page %d of pool %d with %d bytes; pool %d has %d pages of %d bytes",
			page.Index, page.Pool, page.Length, p.id, p.pages, p.pageBytes))
	}
}

// ID is the pool's position in the machine's configuration.
func (p *Pool) ID() effects.PoolID { return p.id }
