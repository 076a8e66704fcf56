package runtime

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/device"
)

// Pages is a handle of pages of the pool. The holder of the handle may use the pages until Release. The handle is
// safe for concurrent use; the holder must order the accesses of its own goroutines to the bytes.
type Pages struct {
	node     *Node
	pages    []effects.Page // immutable
	writable bool           // the pages are from a Reserve, so that the holder may change their bytes

	mu          sync.Mutex
	groups      []*commandGroup // groups of commands whose data movement may still use the pages
	released    bool
	sharedParts int                   // number of parts that are shared (Sharing.Share)
	stored      []bool                // by page: the page now belongs to the cache (Sharing.Store); nil: no page does
	releases    []effects.CommandBody // commands that give the pages back to the machine
	layers      struct {              // the layerwise prefill whose chunks the pages hold
		prefill *prefillRecord
		epoch   int
		first   int // index of the first chunk in the handle
	}
}

func (n *Node) newPages(pages []effects.Page, releases ...effects.CommandBody) *Pages {
	return &Pages{node: n, releases: releases, pages: pages}
}

// Len returns the number of pages. The length of a nil handle is 0.
func (p *Pages) Len() int {
	if p == nil {
		return 0
	}
	return len(p.pages)
}

// Bytes returns the bytes of page i: the whole page after a Reserve, and the valid bytes of the chunk after a Get. The
// bytes of a Get must only be read. The slice is valid until Release; after Release, the call fails. For pages in the
// memory of a device, the call fails as Unsupported: use [Pages.DevicePage].
func (p *Pages) Bytes(i int) ([]byte, error) {
	page, err := p.pageAt("bytes", i)
	if err != nil {
		return nil, err
	}
	if bytes := p.node.driver.memory.hostBytes(page); bytes != nil {
		return bytes, nil
	}
	return nil,
		&Error{Op: "bytes", Code: effects.Unsupported,
			Remedy: "the page is in the memory of a device; use DevicePage"}
}

// A DevicePage is the address and the length of a page in the memory of the device that the pool belongs to.
type DevicePage = device.Page

// DevicePage returns the device address of page i, and otherwise behaves like [Pages.Bytes]. The engine must
// synchronise with its own kernels: a kernel that stores to the page must have ended before the page is put, and a
// kernel that reads the page must have ended before the page is released. Without a device, the call fails as
// Unsupported.
func (p *Pages) DevicePage(i int) (DevicePage, error) {
	page, err := p.pageAt("device page", i)
	if err != nil {
		return DevicePage{}, err
	}
	if at := p.node.driver.memory.deviceAddress(page); at != 0 {
		return DevicePage{Address: at, Bytes: page.Length}, nil
	}
	return DevicePage{},
		&Error{Op: "device page", Code: effects.Unsupported,
			Remedy: "the pool is memory of this process; use Bytes, or set pd_buffer_device: npu"}
}

// MappedPage returns the location of page i for a process that has mapped Node.Mapping: the index of the page in the
// mapping, and the number of its valid bytes, as [Pages.Bytes] would return. A node without a Mapping refuses the call
// as Unsupported.
func (p *Pages) MappedPage(i int) (index, bytes uint32, err error) {
	const op = "mapped page"
	page, err := p.pageAt(op, i)
	if err != nil {
		return 0, 0, err
	}
	if err := p.node.requireAttachable(op); err != nil {
		return 0, 0, err
	}
	return page.Index, page.Length, nil
}

func (p *Pages) pageAt(op string, i int) (effects.Page, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.released {
		return effects.Page{}, argumentError(op, "the handle", "released", "a handle that is not released",
			"release the handle after the last use of its pages")
	}
	if i < 0 || i >= len(p.pages) {
		return effects.Page{}, argumentError(op, "page", strconv.Itoa(i), formatRange(0, len(p.pages)-1), "pages count from 0")
	}
	if p.stored != nil && p.stored[i] {
		return effects.Page{}, argumentError(op, "page", strconv.Itoa(i), "a page that still belongs to the handle",
			"the page was stored and belongs to the cache now")
	}
	return p.pages[i], nil
}

// passToCache runs the function take, which passes count pages from first on to the cache. On success the pages do not
// belong to the handle any more. The call fails if the handle is released, if a page was stored already, or if the
// function fails.
func (p *Pages) passToCache(op string, first, count int, take func() error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.released:
		return argumentError(op, "Pages", "released", "a handle that is not released", "reserve new pages")
	case !p.ownsLocked(first, count):
		return argumentError(op, "Pages", "already stored", "pages that still belong to the handle", "store each page once")
	}
	if err := take(); err != nil {
		return err
	}
	if p.stored == nil {
		p.stored = make([]bool, len(p.pages))
	}
	for i := range count {
		p.stored[first+i] = true
	}
	return nil
}

// ownsPages reports whether none of the count pages from first on belongs to the cache.
func (p *Pages) ownsPages(first, count int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ownsLocked(first, count)
}

// ownsLocked reports whether none of the count pages from first on belongs to the cache. The caller holds p.mu.
func (p *Pages) ownsLocked(first, count int) bool {
	return p.stored == nil || !slices.Contains(p.stored[first:first+count], true)
}

// lendPages calls start, which starts commands that use these pages, and records their group. The call fails after
// Release. The handle stays locked during the start, so that no Release can run before the record.
//
// Invariant: a page is not given back to the machine while a recorded group is not returned (M1).
func (p *Pages) lendPages(op string, start func() (*commandGroup, error)) (*commandGroup, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.released {
		return nil, argumentError(op, "Pages", "released", "a handle that is not released", "reserve new pages")
	}
	group, err := start()
	if err != nil {
		return nil, err
	}
	p.groups = append(slices.DeleteFunc(p.groups, (*commandGroup).isReturned), group)
	return group, nil
}

// Release gives the pages back. It first waits until no command uses the pages: no put, no recall and no push of saved
// layers. Each command has a deadline, and pages that are lent to a receiver come back when the offer ends, which
// renewals can delay up to pull.loan_max. After that a plane needs time to prove that nothing touches the pages;
// without a proof, as on a leased plane whose hardware gives none, the wait lasts as long as the context. The context
// bounds only the wait: if the context ends first, the pages are given back in the background, and Release returns an
// error that says so. A second Release is an error, and so is a Release of pages that are still shared. Release fails
// as TooMany if the ticket table is full; the handle then still holds the pages, and the caller may repeat the call.
// Release of a nil handle does nothing. Pages of a rank that has failed are never given back: Release fails as Failed
// at once, and the bytes of the pages stay where they are.
func (p *Pages) Release(ctx context.Context) error {
	if p == nil {
		return nil // So that a caller may defer Release before it checks the error.
	}
	p.mu.Lock()
	if p.sharedParts > 0 {
		defer p.mu.Unlock()
		return p.sharedError()
	}
	borrowed := p.groups
	repeated := p.released
	p.released = true
	p.mu.Unlock()
	if len(p.pages) == 0 {
		return nil // The handle has no pages, as after a Get without a hit.
	}
	if repeated {
		return &Error{Op: "release", Code: effects.NotFound, Stage: effects.StageCommand, Field: "the handle",
			Theirs: "released", Ours: "a handle that is not released", Remedy: "release each handle once"}
	}
	for i, group := range borrowed {
		if group.isReturned() {
			continue // Even if ctx has ended, because there is nothing to wait for.
		}
		select {
		case <-group.Returned():
		case <-p.node.tickets.failed:
		case <-ctx.Done():
			p.node.tasks.Go(func() {
				for _, group := range borrowed[i:] {
					select {
					case <-group.Returned():
					case <-p.node.tickets.failed:
						return
					}
				}
				if err := p.retryReturn(); err != nil {
					p.node.log.Error("pages could not be returned", "pages", len(p.pages), "err", err)
				}
			})
			return &Error{Op: "release", Code: contextCode(ctx), Count: len(p.pages), Cause: ctx.Err(),
				Remedy: "a put still uses the pages; they are returned in the background when it has ended"}
		}
	}
	err := p.returnPages()
	if CodeOf(err) == effects.TooMany {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.released = false // The machine took no command, so the holder may try again.
	}
	return err
}

// returnPages sends the releases, which give the pages back to the machine, and waits for their outcomes. It returns
// the first error.
func (p *Pages) returnPages() error {
	p.node.loop.mailbox.Hold()
	group, err := p.node.submitAll("release", classEnding, p.releases, func([]*Ticket) {})
	p.node.loop.mailbox.Step()
	if err != nil {
		return err
	}
	for _, t := range group.tickets {
		if out := <-t.Done(); out.Code != effects.OK && err == nil {
			err = &Error{Op: "release", Code: out.Code}
		}
	}
	return err
}

// returnUnused gives back pages for which no caller gets a handle. If the ticket table is full, the work continues in
// the background until there is room for the command.
func (p *Pages) returnUnused() {
	if len(p.pages) == 0 || CodeOf(p.returnPages()) != effects.TooMany {
		return
	}
	p.node.tasks.Go(func() { _ = p.retryReturn() })
}

// retryReturn repeats returnPages until there is room for the command, and returns the outcome.
func (p *Pages) retryReturn() error {
	pause := time.NewTicker(returnRetryInterval)
	defer pause.Stop()
	for {
		if err := p.returnPages(); CodeOf(err) != effects.TooMany {
			return err
		}
		<-pause.C
	}
}

// returnRetryInterval is the interval between two attempts to give pages back.
const returnRetryInterval = 10 * time.Millisecond
