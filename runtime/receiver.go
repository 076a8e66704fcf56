package runtime

import (
	"context"
	"fmt"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/runtime/config"
)

// A Receiver is the decode side of a node: senders push chunks into its pool, and it serves them by
// key.
type Receiver struct{ node *Node }

// Submit is the core form of every call: body is a command of fsm/rank/flows/engine. What it points to must not
// change before the ticket is done. Pages moved this way have no handle: the caller releases them by
// the ticket's ID. A Fetch moved this way has no Scatter, and ends as Unsupported when it comes to that.
func (r Receiver) Submit(body effects.CommandBody) (*Ticket, error) {
	return r.node.submit(fmt.Sprintf("%T", body), work, body)
}

// Get names chunks that an engine wants to read from the pool, in order.
type Get struct {
	// Request is the proxy's id of the request that the chunks were sent for. The Get consumes what it gives: the
	// request's claim on each of those chunks ends with it, and a chunk that nobody has a claim on leaves the pool when it
	// is released. So a request gets its chunks once; other requests' claims on the same chunks stay. A chunk that came
	// for no named request, as from plain LMCache senders, is consumed by one Get that names any.
	//
	// Without a Request the Get is a look: it consumes nothing, and the chunks stay for those they were sent for.
	Request string
	Keys    []string
	// Layered: the chunks came layer by layer (use_layerwise). Each has a page for every layer, all of them in order:
	// layer l of chunk i is page i*Layers+l of what Get gives.
	Layered bool
	// Patience is how long to wait for chunks that are not here yet, at most the configured get_timeout; 0: not at all.
	Patience time.Duration
}

// Get waits for its Patience, and no longer than ctx's deadline, until all keys are ready here; what is only offered is
// not (Fetch). It returns the usable prefix: as many pages, in order, as chunks from the first key on are there.
// Release the handle when the chunks were read, also where an error came with it: that makes room, and consumes nothing
// more.
//
// Where a chunk is missing, an error says which is the first and why, beside the prefix: NotFound if it is not here
// when the time is over, Lapsed if it was, and was kept for its request for the configured retention in vain. As soon
// as its sender says how the request ended (Sender.End), the Get ends: as SenderFailed if that failed, and as NotSent
// if all of it was sent, and this chunk is not among what came. What is missing must be recomputed. With any other
// error there may be a prefix too. The handle is never nil but for a call that is Invalid.
//
// Of more chunks than limits.keys_per_batch each part is waited for in turn, within the one Patience: those that came
// stay pinned while the next are waited for, and what ends the call ends it with the prefix that it has.
func (r Receiver) Get(ctx context.Context, g Get) (*Pages, error) {
	if err := r.check("get", g.Keys); err != nil {
		return nil, err
	}
	perChunk := 1 // pages
	if g.Layered {
		if perChunk = r.node.layers; perChunk == 0 {
			e := wrong("get", "Layered", "true", "false", "set use_layerwise: true, here and at the senders")
			e.Code = effects.Unsupported
			return nil, e
		}
	}
	until := time.Now().Add(min(g.Patience, time.Duration(r.node.cfg.GetWaitMax)))
	var pages []effects.Page
	var releases []effects.CommandBody
	var failed error
	for _, run := range cut(len(g.Keys), r.node.batch/perChunk) {
		patience := effects.Duration(0)
		if left := time.Until(until); left > 0 {
			patience = patienceOf(ctx, left, 0)
		}
		part := g.Keys[run[0]:run[1]]
		r.node.loop.mailbox.Hold()
		t, err := r.node.submit("get", work, &engine.Get{Request: []byte(g.Request), Keys: keyBytes(part),
			Layered: g.Layered, Wait: patience})
		r.node.loop.mailbox.Step()
		if err != nil {
			failed = err
			break
		}
		out := r.node.await(ctx, t, &engine.Abort{Target: t.id})
		if len(out.Pages) > 0 {
			pages, releases = append(pages, out.Pages...), append(releases, &engine.Unpin{Got: t.id})
		}
		if out.Code != effects.OK {
			failed = r.node.getEnded(ctx, &g, out, len(pages)/perChunk)
			break
		}
	}
	return r.node.newPages(pages, releases...), failed
}

// getEnded is the error of a Get that has the first chunks only.
func (n *Node) getEnded(ctx context.Context, g *Get, out Outcome, first int) *Error {
	code, cause := endOf(ctx, out.Code)
	e := (&Error{Op: "get", Code: code, Count: len(g.Keys) - first, Cause: cause}).because(out.Why)
	lapsed := code == effects.Lapsed
	if lapsed || code == effects.NotFound {
		e.Cause = outOfTime(ctx)
	}
	switch {
	case code == effects.NotFound:
		e.Remedy = fmt.Sprintf("chunk %d of %d is not here (key %q); compute from it on", first, len(g.Keys), g.Keys[first])
	case lapsed:
		e.Remedy = fmt.Sprintf("chunk %d of %d was here and was kept for %v, but nobody came for it (key %q); compute from "+
			"it on, or raise retention",
			first, len(g.Keys), time.Duration(n.cfg.ClaimTTL), g.Keys[first])
	}
	return e
}

// Contains returns how many chunks from the first key on could be had now: by Get or Fetch if they are here, by Fetch
// if a sender's offer of them stands (pd_delay_pull). It consumes nothing and promises nothing for later. It counts
// none that came layer by layer, which no Fetch has: a Get of Layered chunks without a Request looks for those.
func (r Receiver) Contains(ctx context.Context, keys []string) (hits int, err error) {
	if len(keys) == 0 {
		return 0, nil
	}
	if err := r.check("contains", keys); err != nil {
		return 0, err
	}
	for _, run := range cut(len(keys), r.node.batch) {
		part := keys[run[0]:run[1]]
		t, err := r.node.submit("contains", work, &engine.Contains{Keys: keyBytes(part)})
		if err != nil {
			return hits, err
		}
		out := <-t.Done() // Answered by the step that takes it.
		if out.Code != effects.OK && out.Code != effects.NotFound {
			return hits, (&Error{Op: "contains", Code: out.Code, Count: len(keys), Cause: ctx.Err()}).because(out.Why)
		}
		if hits += out.Hits; out.Hits < len(part) {
			break
		}
	}
	return hits, nil
}

// Abandon gives up what is kept for a request that will not come for it: claims on chunks that are here, and offers
// that were not read, whose senders are told.
func (r Receiver) Abandon(request string) error { return r.AbandonFor(request, "") }

// AbandonFor does so and says why, which the request's sender hears with the next word of its how a request ended
// (Sender.End): so both ends know why what is sent is of no use. A reason beyond 240 bytes is cut.
func (r Receiver) AbandonFor(request, reason string) error {
	if err := r.node.wantSide("abandon", config.Receiver); err != nil {
		return err
	}
	if request == "" {
		return wrong("abandon", "request", "empty", "the proxy's id of the request", "name the request that is given up")
	}
	t, err := r.node.submit("abandon", ending, &engine.Abandon{Request: []byte(request), Reason: []byte(reason)})
	if err != nil {
		return err
	}
	if out := <-t.Done(); out.Code != effects.OK && out.Code != effects.NotFound {
		return (&Error{Op: "abandon", Code: out.Code}).because(out.Why)
	}
	return nil
}

// check says what is wrong with a call for keys.
func (r Receiver) check(op string, keys []string) error {
	if err := r.node.wantSide(op, config.Receiver); err != nil {
		return err
	}
	if len(keys) == 0 {
		return wrong(op, "Keys", "empty", "at least one", "name each chunk by its key")
	}
	return r.node.checkKeys(op, keys)
}

func keyBytes(keys []string) [][]byte {
	all := make([][]byte, len(keys))
	for i, key := range keys {
		all[i] = []byte(key)
	}
	return all
}
