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

// Pages is memory of the pool that the holder of the handle may use until Release. It is safe for
// concurrent use; what goroutines do to the bytes is theirs to order.
type Pages struct {
	node  *Node
	pages []effects.Page // immutable
	own   bool           // of a Reserve: their bytes are the holder's to change

	mu       sync.Mutex
	borrowed []*lot // puts whose memory may still be read
	released bool
	shared   int                   // parts that are shared
	given    []bool                // pages that are the cache's; nil: none
	releases []effects.CommandBody // what gives them back
	layers   struct {              // which chunks of which prefill they are for
		of    *prefill
		epoch int
		first int
	}
}

func (n *Node) newPages(pages []effects.Page, releases ...effects.CommandBody) *Pages {
	return &Pages{node: n, releases: releases, pages: pages}
}

// Len is the number of pages; 0 of nil.
func (p *Pages) Len() int {
	if p == nil {
		return 0
	}
	return len(p.pages)
}

// Host returns the bytes of page i: the whole page after a Reserve, the valid bytes of the chunk after
// a Get (which are only to be read). The slice is valid until Release; from then on Host refuses. Pages in the memory
// of a
// device it refuses as Unsupported: see Device.
func (p *Pages) Host(i int) ([]byte, error) {
	page, err := p.page("host", i)
	if err != nil {
		return nil, err
	}
	if bytes := p.node.world.memory.host(page); bytes != nil {
		return bytes, nil
	}
	return nil,
		&Error{Op: "host", Code: effects.Unsupported,
			Remedy: "the page is in the memory of a device, whose addresses mean nothing here; use Device"}
}

// A DevicePage is where the bytes of a page are for the device that the pool belongs to.
type DevicePage = device.Page

// Device returns where page i is, like Host. What the engine's kernels store there must have ended, by the engine's own
// synchronisation,
// before the page is put; and what they read, before it is released. Without a device it refuses as Unsupported.
func (p *Pages) Device(i int) (DevicePage, error) {
	page, err := p.page("device", i)
	if err != nil {
		return DevicePage{}, err
	}
	if at := p.node.world.memory.address(page); at != 0 {
		return DevicePage{Address: at, Bytes: page.Length}, nil
	}
	return DevicePage{},
		&Error{Op: "device", Code: effects.Unsupported,
			Remedy: "the pool is memory of this process; use Host, or pd_buffer_device: npu"}
}

// At returns where page i is for a process that has mapped Node.Mapping: its index there, and of how many bytes, like
// Host. A node without a Mapping refuses it as Unsupported.
func (p *Pages) At(i int) (index, bytes uint32, err error) {
	const op = "at"
	page, err := p.page(op, i)
	if err != nil {
		return 0, 0, err
	}
	if err := p.node.openToEngines(op); err != nil {
		return 0, 0, err
	}
	return page.Index, page.Length, nil
}

func (p *Pages) page(op string, i int) (effects.Page, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.released {
		return effects.Page{}, wrong(op, "the handle", "released", "one that is not", "keep it while you use its pages")
	}
	if i < 0 || i >= len(p.pages) {
		return effects.Page{}, wrong(op, "page", strconv.Itoa(i), upTo(0, len(p.pages)-1), "pages count from 0")
	}
	if p.given != nil && p.given[i] {
		return effects.Page{}, wrong(op, "page", strconv.Itoa(i), "one that the handle has",
			"it was stored: the cache has it")
	}
	return p.pages[i], nil
}

// give has the cache take pages, which then are none of the handle's.
func (p *Pages) give(op string, first, count int, take func() error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.released:
		return wrong(op, "Pages", "released", "a handle that is not", "reserve new ones")
	case !p.has(first, count):
		return wrong(op, "Pages", "stored already", "pages that the handle has", "store each once")
	}
	if err := take(); err != nil {
		return err
	}
	if p.given == nil {
		p.given = make([]bool, len(p.pages))
	}
	for i := range count {
		p.given[first+i] = true
	}
	return nil
}

// keeps says so, too.
func (p *Pages) keeps(first, count int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.has(first, count)
}

// has says whether none of these pages is the cache's.
func (p *Pages) has(first, count int) bool {
	return p.given == nil || !slices.Contains(p.given[first:first+count], true)
}

// lend starts commands that read these pages, and notes their lot; it refuses after Release. The
// handle stays locked meanwhile, so that no Release comes between the two.
func (p *Pages) lend(op string, start func() (*lot, error)) (*lot, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.released {
		return nil, wrong(op, "Pages", "released", "a handle that is not", "reserve new ones")
	}
	l, err := start()
	if err != nil {
		return nil, err
	}
	p.borrowed = append(slices.DeleteFunc(p.borrowed, (*lot).isReturned), l)
	return l, nil
}

// Release gives the pages back. It first waits until no Put uses them: bounded, because every Put has a deadline and
// every plane a bound on what follows it; pages that are lent to a receiver come back by pd_pull_pending_ttl at the
// latest. The context bounds only that wait; when it ends first, the pages are given back in the background and
// Release says so. A second Release is an error. Pages of a rank that has failed are never given back: Release says
// Failed at once, and their bytes stay where they are.
func (p *Pages) Release(ctx context.Context) error {
	if p == nil {
		return nil // So that it may be deferred before the error is looked at.
	}
	p.mu.Lock()
	if p.shared > 0 {
		defer p.mu.Unlock()
		return p.stillShared()
	}
	borrowed := p.borrowed
	again := p.released
	p.released = true
	p.mu.Unlock()
	if len(p.pages) == 0 {
		return nil // Nothing was given: a Get without a hit.
	}
	if again {
		return &Error{Op: "release", Code: effects.NotFound, Stage: effects.StageCommand, Field: "the handle",
			Theirs: "released", Ours: "one that is not", Remedy: "release each once"}
	}
	for i, t := range borrowed {
		if t.isReturned() {
			continue // Also when ctx has ended: there is nothing to wait for.
		}
		select {
		case <-t.Returned():
		case <-p.node.tickets.fallen:
		case <-ctx.Done():
			p.node.tasks.Go(func() {
				for _, t := range borrowed[i:] {
					select {
					case <-t.Returned():
					case <-p.node.tickets.fallen:
						return
					}
				}
				if err := p.insist(); err != nil {
					p.node.log.Error("pages could not be given back", "pages", len(p.pages), "err", err)
				}
			})
			return &Error{Op: "release", Code: waitedOut(ctx), Count: len(p.pages), Cause: ctx.Err(),
				Remedy: "a put still uses the pages; they go back by themselves when it has ended"}
		}
	}
	err := p.giveBack()
	if CodeOf(err) == effects.TooMany {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.released = false // Nothing happened; the holder may try again.
	}
	return err
}

func (p *Pages) giveBack() error {
	p.node.loop.mailbox.Hold()
	l, err := p.node.submitAll("release", ending, p.releases, func([]*Ticket) {})
	p.node.loop.mailbox.Step()
	if err != nil {
		return err
	}
	for _, t := range l.tickets {
		if out := <-t.Done(); out.Code != effects.OK && err == nil {
			err = &Error{Op: "release", Code: out.Code}
		}
	}
	return err
}

// discard gives back pages that nobody will have a handle of, if not now then as soon as there is room for the command.
func (p *Pages) discard() {
	if len(p.pages) == 0 || CodeOf(p.giveBack()) != effects.TooMany {
		return
	}
	p.node.tasks.Go(func() { _ = p.insist() })
}

// insist gives back pages as soon as there is room for the command.
func (p *Pages) insist() error {
	pause := time.NewTicker(discardEvery)
	defer pause.Stop()
	for {
		if err := p.giveBack(); CodeOf(err) != effects.TooMany {
			return err
		}
		<-pause.C
	}
}

// discardEvery is how often that is tried again.
const discardEvery = 10 * time.Millisecond
