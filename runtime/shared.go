package runtime

import (
	"context"
	"strconv"
	"sync"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
)

// Shared is pages of an engine's that its node shares until Withdraw.
type Shared struct {
	pages *Pages

	mu    sync.Mutex
	parts []effects.Ticket // that are shared still
	hits  int
}

// Share lets peers read pages that the engine goes on reading itself: chunk i has the key keys[i] and fills page
// first+i. Nobody writes to them until Withdraw has returned, and the handle cannot be released before. What is shared
// stays, whatever room is wanted, but for a drain. Chunks that are here already stay where they are: Hits counts the
// others.
//
// After an error beside a Shared so many chunks are not shared as that counts; withdraw the others.
func (s Sharing) Share(_ context.Context, keys []string, pages *Pages, first int) (*Shared, error) {
	n := s.node
	if err := n.checkStore("share", keys, pages, first); err != nil {
		return nil, err
	}
	x := &Shared{pages: pages}
	for done := 0; done < len(keys); {
		at := first + done
		part := min(len(keys)-done, n.batch-at%n.batch) // Of one of the reserves that the handle is of.
		id, hits, err := pages.share(at, keyBytes(keys[done:done+part]), len(keys)-done)
		if err != nil {
			return x.orNothing(), err
		}
		x.parts, x.hits = append(x.parts, id), x.hits+hits
		done += part
	}
	return x, nil
}

// orNothing is nil where nothing is shared.
func (x *Shared) orNothing() *Shared {
	if len(x.parts) == 0 {
		return nil
	}
	return x
}

// Hits is how many chunks are shared; the others were here already.
func (x *Shared) Hits() int { return x.hits }

// Withdraw takes the pages back. From its call on nobody begins to read them who was not promised them; it returns when
// nobody reads or expects them any more, at the latest when leases and claims are over: then they are the engine's
// alone. When ctx is over before, the error says so, and it may be called again. A second one after that is NotFound.
func (x *Shared) Withdraw(ctx context.Context) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.parts) == 0 {
		return &Error{Op: "withdraw", Code: effects.NotFound, Stage: effects.StageCommand, Field: "the handle",
			Theirs: "withdrawn", Ours: "one that is not", Remedy: "withdraw each once"}
	}
	n := x.pages.node
	var waits []*Ticket
	var failed error
	for _, part := range x.parts {
		t, err := n.submit("withdraw", ending, &engine.Withdraw{Shared: part})
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
		case <-ctx.Done(): // The command has no patience of its own, so a deadline takes it back as well.
			out = n.takeBack(t, &engine.Abort{Target: t.id})
		}
		if out.Code == effects.OK {
			x.pages.unshare()
			continue
		}
		left = append(left, x.parts[i])
		code, cause := endOf(ctx, out.Code)
		failed = (&Error{Op: "withdraw", Code: code, Count: len(left), Cause: cause}).because(out.Why)
	}
	x.parts = left
	return failed
}

// share has the node share pages of the handle, which then cannot be released. So many chunks are left to share.
func (p *Pages) share(first int, keys [][]byte, left int) (id effects.Ticket, hits int, err error) {
	count := len(keys)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.released:
		return 0, 0, wrong("share", "Pages", "released", "a handle that is not", "reserve new ones")
	case !p.has(first, count):
		return 0, 0, wrong("share", "Pages", "stored already", "pages that the handle has", "share what was not stored")
	}
	t, err := p.node.submit("share", work, &engine.Share{
		Reserved: p.releases[first/p.node.batch].(*engine.Release).Reserved, Keys: keys, Pages: p.pages[first : first+count],
	})
	if err != nil {
		return 0, 0, err
	}
	out := <-t.Done() // Answered by the step that takes it.
	if out.Code != effects.OK {
		return 0, 0, (&Error{Op: "share", Code: out.Code, Count: left}).because(out.Why)
	}
	p.shared++
	return t.id, int(out.Hits), nil
}

func (p *Pages) unshare() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shared--
}

// stillShared refuses a Release.
func (p *Pages) stillShared() error {
	return wrong("release", "the handle", strconv.Itoa(p.shared)+" parts that are shared", "none", "withdraw them first")
}
