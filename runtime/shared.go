package runtime

import (
	"context"
	"slices"
	"strconv"
	"sync"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
)

// SharedPages represents pages of the engine that the node shares with peers until Withdraw.
type SharedPages struct {
	pages *Pages

	mu    sync.Mutex
	parts []effects.Ticket // tickets of the parts that are still shared
	hits  int
}

// Share lets peers read pages that the engine continues to read itself: chunk i has the key keys[i] and fills page
// first+i. Nothing may write to the pages until Withdraw has returned, and the handle cannot be released before.
// Shared chunks are not evicted when the pool needs room; only a drain ends them. Chunks that the node already has
// are not shared again: Hits counts the chunks that Share added.
//
// If Share returns an error beside a [SharedPages], the error's Count is the number of chunks that are not shared; the
// caller withdraws the chunks that are.
func (s Sharing) Share(_ context.Context, keys []string, pages *Pages, first int) (*SharedPages, error) {
	n := s.node
	if err := n.checkStore("share", keys, pages, first); err != nil {
		return nil, err
	}
	x := &SharedPages{pages: pages}
	for done := 0; done < len(keys); {
		at := first + done
		part := min(len(keys)-done, n.keysPerBatch-at%n.keysPerBatch) // Within one of the Reserve commands behind the handle.
		id, hits, err := pages.sharePart(at, keysToBytes(keys[done:done+part]), len(keys)-done)
		if err != nil {
			return x.orNil(), err
		}
		x.parts, x.hits = append(x.parts, id), x.hits+hits
		done += part
	}
	return x, nil
}

// orNil returns x, or nil if no part is shared.
func (x *SharedPages) orNil() *SharedPages {
	if len(x.parts) == 0 {
		return nil
	}
	return x
}

// Hits returns the number of chunks that are shared; the node already had the others.
func (x *SharedPages) Hits() int { return x.hits }

// Withdraw takes the pages back. As soon as it is called, no new read of the pages starts, except reads that were
// already promised to peers. Withdraw returns when no peer reads or expects the pages any more, at the latest when
// the leases and claims are over; then the pages belong to the engine alone. If ctx ends first, Withdraw returns
// an error, and may be called again. A Withdraw after a successful Withdraw fails as NotFound.
func (x *SharedPages) Withdraw(ctx context.Context) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.parts) == 0 {
		return &Error{Op: "withdraw", Code: effects.NotFound, Stage: effects.StageCommand, Field: "the handle",
			Theirs: "withdrawn", Ours: "a handle that is not withdrawn", Remedy: "withdraw each handle once"}
	}
	n := x.pages.node
	var waits []*Ticket
	var failed error
	for _, part := range x.parts {
		t, err := n.submitCommand("withdraw", classEnding, &engine.Withdraw{Shared: part})
		if err != nil {
			failed = err
			break
		}
		waits = append(waits, t)
	}
	left := x.parts[len(waits):len(x.parts):len(x.parts)]
	for i, t := range waits {
		var out Outcome
		select {
		case out = <-t.Done():
		case <-ctx.Done(): // Withdraw has no timeout in the machine, so a deadline of ctx aborts it too.
			out = n.abortAndAwait(t, &engine.Abort{Target: t.id})
		}
		if out.Code == effects.OK {
			x.pages.removeSharedPart()
			continue
		}
		left = append(left, x.parts[i])
		code, cause := callerCode(ctx, out.Code)
		failed = (&Error{Op: "withdraw", Code: code, Count: len(left), Cause: cause}).withDetails(out.Details)
	}
	x.parts = left
	return failed
}

// sharePart makes the node share pages of the handle, which then cannot be released. left is the number of chunks that
// remain to be shared, for the error.
func (p *Pages) sharePart(first int, keys [][]byte, left int) (id effects.Ticket, hits int, err error) {
	count := len(keys)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.released:
		return 0, 0, argumentError("share", "Pages", "released", "a handle that is not released", "reserve new pages")
	case !p.ownsLocked(first, count):
		return 0, 0, argumentError("share", "Pages", "already stored", "pages that still belong to the handle",
			"share only pages that were not stored")
	}
	pages := slices.Clone(p.pages[first : first+count])
	p.node.stateSums(pages)
	t, err := p.node.submitCommand("share", classWork, &engine.Share{
		Reserved: p.releases[first/p.node.keysPerBatch].(*engine.Release).Reserved, Keys: keys, Pages: pages,
	})
	if err != nil {
		return 0, 0, err
	}
	out := <-t.Done() // The machine answers in the step that takes the command.
	if out.Code != effects.OK {
		return 0, 0, (&Error{Op: "share", Code: out.Code, Count: left}).withDetails(out.Details)
	}
	p.sharedParts++
	return t.id, int(out.Hits), nil
}

func (p *Pages) removeSharedPart() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sharedParts--
}

// sharedError returns the error of a Release while parts of the handle are shared.
func (p *Pages) sharedError() error {
	return argumentError("release", "the handle", strconv.Itoa(p.sharedParts)+" parts that are shared", "none", "withdraw them first")
}
