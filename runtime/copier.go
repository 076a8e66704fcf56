package runtime

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/kvferry/kvferry/effects"
)

// copySource is the memory from which chunks are copied.
type copySource interface {
	// Read copies a page's valid bytes to dst, which has the same length. Read blocks, and may be called concurrently.
	Read(dst []byte, page effects.Page) error
}

// poolSource is a pool with chunks that are copied to an arena at the pool's end.
type poolSource struct{ processPool }

// Read implements copied.
func (p poolSource) Read(dst []byte, page effects.Page) error {
	copy(dst, p.Bytes(page))
	return nil
}

// copier carries out the Copy effects of a machine, on a crew of goroutines.
type copier struct {
	source  copySource
	target  func(effects.Page) []byte
	mailbox *mailbox
	log     *slog.Logger
	tasks   taskRunner
	closing atomic.Bool

	mu         sync.Mutex
	inProgress map[effects.Corr]*copyTask // the copies in progress
}

// A copyTask is a Copy effect in progress.
type copyTask struct {
	corr      effects.Corr
	pairs     []effects.CopyPair
	cancelled atomic.Bool
}

// newCopier returns copies that read from the memory source and write into the pages that the function target returns,
// on at most workers goroutines. Completions are posted to box.
func newCopier(source copySource, target func(effects.Page) []byte, workers int, box *mailbox, log *slog.Logger) *copier {
	return &copier{source: source, target: target, mailbox: box, log: log, tasks: taskRunner{workersMax: workers},
		inProgress: map[effects.Corr]*copyTask{}}
}

// startCopy begins a Copy, and never blocks.
func (c *copier) startCopy(e *effects.Copy) {
	o := &copyTask{corr: e.Corr, pairs: append([]effects.CopyPair(nil), e.Pairs...)}
	c.mu.Lock()
	c.inProgress[o.corr] = o
	c.mu.Unlock()
	c.tasks.runTask(func() {
		code := c.copyPages(o)
		c.mu.Lock()
		delete(c.inProgress, o.corr)
		c.mu.Unlock()
		c.mailbox.Post(&effects.CopyDone{Corr: o.corr, Code: code, Settled: true, At: now()})
	})
}

// copyPages copies the pages in sequence, and checks before each page whether the copy was cancelled or the node
// closes.
func (c *copier) copyPages(o *copyTask) effects.Code {
	for _, pair := range o.pairs {
		switch {
		case c.closing.Load():
			return effects.Closed
		case o.cancelled.Load():
			return effects.Cancelled
		}
		if err := c.source.Read(c.target(pair.To), pair.From); err != nil {
			c.log.Error("a chunk could not be copied to the arena", "page", pair.From.Index, "bytes", pair.From.Length, "err",
				err)
			return effects.Faulted
		}
	}
	return effects.OK
}

// cancelCopy requests that a copy end before the next page. Unknown copies are ignored.
func (c *copier) cancelCopy(corr effects.Corr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o := c.inProgress[corr]; o != nil {
		o.cancelled.Store(true)
	}
}

// close ends all copies, and waits until ctx ends for the copies that are in the middle of a page. An error means
// that some copies still access both pools. close may be called again.
func (c *copier) close(ctx context.Context) error {
	c.closing.Store(true)
	if left := c.tasks.awaitIdle(ctx); left > 0 {
		return &Error{Op: "close", Code: contextCode(ctx), Count: left, Cause: ctx.Err(),
			Remedy: "copies to the arena have not ended, so the pools stay mapped until they do; check the device"}
	}
	return nil
}
