package runtime

import (
	"context"
	"slices"
	"sync"

	"github.com/kvferry/kvferry/effects"
)

// Pages is memory of the pool that the holder of the handle may use until Release. It is safe for
// concurrent use; what goroutines do to the bytes is theirs to order.
type Pages struct {
	node    *Node
	release effects.CommandBody
	pages   []effects.Page // immutable

	mu       sync.Mutex
	borrowed []*Ticket // puts whose memory may still be read
	released bool
}

func (n *Node) newPages(pages []effects.Page, release effects.CommandBody) *Pages {
	return &Pages{node: n, release: release, pages: pages}
}

// Len is the number of pages.
func (p *Pages) Len() int { return len(p.pages) }

// Host returns the bytes of page i: the whole page after a Reserve, the valid bytes of the chunk after
// a Get (which are only to be read). The slice is valid until Release; from then on Host refuses.
func (p *Pages) Host(i int) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.released {
		return nil, invalid("host", "these pages were released; keep the handle open while you use them")
	}
	if i < 0 || i >= len(p.pages) {
		return nil, invalid("host", "page %d of %d; give 0 to %d", i, len(p.pages), len(p.pages)-1)
	}
	return p.node.hostOf(p.pages[i]), nil
}

// lend starts a command that reads these pages, and notes its ticket; it refuses after Release. The
// handle stays locked meanwhile, so that no Release comes between the two.
func (p *Pages) lend(op string, start func() (*Ticket, error)) (*Ticket, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.released {
		return nil, invalid(op, "these pages were released; reserve new ones")
	}
	t, err := start()
	if err != nil {
		return nil, err
	}
	p.borrowed = append(slices.DeleteFunc(p.borrowed, (*Ticket).isReturned), t)
	return t, nil
}

// Release gives the pages back. It first waits until no Put uses them: bounded, because every Put has a
// deadline and every plane a bound on what follows it; pages that are lent to a receiver come back by
// pd_pull_pending_ttl at the latest. The context bounds only that wait; when it ends first, the pages are given
// back in the background and Release says so. A second Release is an error.
func (p *Pages) Release(ctx context.Context) error {
	p.mu.Lock()
	borrowed := p.borrowed
	again := p.released
	p.released = true
	p.mu.Unlock()
	if len(p.pages) == 0 {
		return nil // Nothing was given: a Get without a hit.
	}
	if again {
		return &Error{Op: "release", Code: effects.NotFound, Remedy: "these pages were released before"}
	}
	for i, t := range borrowed {
		if t.isReturned() {
			continue // Also when ctx has ended: there is nothing to wait for.
		}
		select {
		case <-t.Returned():
		case <-ctx.Done():
			p.node.tasks.Go(func() {
				for _, t := range borrowed[i:] {
					<-t.Returned()
				}
				if err := p.giveBack(); err != nil {
					p.node.log.Error("pages could not be given back", "pages", len(p.pages), "err", err)
				}
			})
			return &Error{Op: "release", Code: effects.Expired, Count: len(p.pages), Cause: ctx.Err(),
				Remedy: "a put still uses the pages; they go back by themselves when it has ended"}
		}
	}
	return p.giveBack()
}

func (p *Pages) giveBack() error {
	t, err := p.node.submit("release", ending, p.release)
	if CodeOf(err) == effects.TooMany {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.released = false // Nothing happened; the holder may try again.
		return err
	}
	if err != nil {
		return err
	}
	if out := <-t.Done(); out.Code != effects.OK {
		return &Error{Op: "release", Code: out.Code}
	}
	return nil
}
