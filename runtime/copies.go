package runtime

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/kvferry/kvferry/effects"
)

// copied is the memory from which chunks are copied.
type copied interface {
	// Read copies a page's valid bytes to dst, which has the same length. Read blocks, and may be called concurrently.
	Read(dst []byte, page effects.Page) error
}

// inPool is a pool with chunks that are copied to an arena at the pool's end.
type inPool struct{ processPool }

// Read implements copied.
func (p inPool) Read(dst []byte, page effects.Page) error {
	copy(dst, p.Bytes(page))
	return nil
}

// copies carries out the Copy effects of a machine, on a crew of goroutines.
type copies struct {
	from    copied
	to      func(effects.Page) []byte
	mailbox *mailbox
	log     *slog.Logger
	crew    crew
	closing atomic.Bool

	mu     sync.Mutex
	orders map[effects.Corr]*copyOrder // the copies in progress
}

// A copyOrder is a Copy effect in progress.
type copyOrder struct {
	corr      effects.Corr
	pairs     []effects.CopyPair
	cancelled atomic.Bool
}

// newCopies returns copies that read from the memory from and write into the pages that the function to returns, on
// at most workers goroutines. Completions are posted to box.
func newCopies(from copied, to func(effects.Page) []byte, workers int, box *mailbox, log *slog.Logger) *copies {
	return &copies{from: from, to: to, mailbox: box, log: log, crew: crew{size: workers},
		orders: map[effects.Corr]*copyOrder{}}
}

// start begins a Copy, and never blocks.
func (c *copies) start(e *effects.Copy) {
	o := &copyOrder{corr: e.Corr, pairs: append([]effects.CopyPair(nil), e.Pairs...)}
	c.mu.Lock()
	c.orders[o.corr] = o
	c.mu.Unlock()
	c.crew.run(func() {
		code := c.carryOut(o)
		c.mu.Lock()
		delete(c.orders, o.corr)
		c.mu.Unlock()
		c.mailbox.Post(&effects.CopyDone{Corr: o.corr, Code: code, Settled: true, At: now()})
	})
}

// carryOut copies the pages in sequence, and checks before each page whether the copy was cancelled or the node
// closes.
func (c *copies) carryOut(o *copyOrder) effects.Code {
	for _, pair := range o.pairs {
		switch {
		case c.closing.Load():
			return effects.Closed
		case o.cancelled.Load():
			return effects.Cancelled
		}
		if err := c.from.Read(c.to(pair.To), pair.From); err != nil {
			c.log.Error("a chunk could not be copied to the arena", "page", pair.From.Index, "bytes", pair.From.Length, "err",
				err)
			return effects.Faulted
		}
	}
	return effects.OK
}

// cancel requests that a copy end before the next page. Unknown copies are ignored.
func (c *copies) cancel(corr effects.Corr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o := c.orders[corr]; o != nil {
		o.cancelled.Store(true)
	}
}

// close ends all copies, and waits until ctx ends for the copies that are in the middle of a page. An error means
// that some copies still access both pools. close may be called again.
func (c *copies) close(ctx context.Context) error {
	c.closing.Store(true)
	if left := c.crew.wait(ctx); left > 0 {
		return &Error{Op: "close", Code: waitedOut(ctx), Count: left, Cause: ctx.Err(),
			Remedy: "copies to the arena have not ended, so the pools stay mapped until they do; look at the device"}
	}
	return nil
}
