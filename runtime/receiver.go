package runtime

import (
	"context"
	"fmt"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/runtime/config"
)

// A Receiver is the decode side of a node. Senders push chunks into its pool, or offer chunks to it, and the
// engine reads the chunks by key.
//
// Example: a sender pushes the chunks of request r1; the decode engine calls Get with Request r1 and the keys,
// reads the pages, and calls Pages.Release, which makes room for other chunks.
type Receiver struct{ node *Node }

// Submit starts one command of the state machine and returns its ticket; the other methods are built on the same
// mechanism. body is a command of fsm/rank/flows/engine, and the memory that body points to must not change before
// the ticket is done. Pages that such commands use have no handle: the caller releases them by the ticket's ID. A
// Fetch that is submitted this way has no Scatter, and fails as Unsupported when a chunk is to be scattered.
func (r Receiver) Submit(body effects.CommandBody) (*Ticket, error) {
	return r.node.submitCommand(fmt.Sprintf("%T", body), classWork, body)
}

// Get names chunks that an engine wants to read from the pool, in order.
type Get struct {
	// Request is the proxy's id of the request that the chunks were sent for. The Get consumes the chunks that it
	// returns: the request's claim on each of the chunks ends, and a chunk without any claim leaves the pool when
	// the chunk is released. So a request gets its chunks once, while the claims of other requests on the same
	// chunks stay. A chunk that was sent for no named request, as by plain LMCache senders, is consumed by the
	// first Get that names any request.
	//
	// Without a Request the Get only looks: it consumes nothing, and the chunks stay for the requests that they
	// were sent for.
	Request string
	Keys    []string
	// Layered says that the chunks were pushed layer by layer (use_layerwise). Then each chunk has one page per
	// layer, in order: layer l of chunk i is page i*Layers+l of the handle that Get returns.
	Layered bool
	// Domain is the trust domain whose chunks the Get accepts: chunks that a peer of the domain sent. Empty: this node's
	// own domain. Others are stated as spiffe://HOST, as dns for all identities that are DNS names, or as unproven for
	// peers without an identity. A Get of another domain is Invalid at a node that does not tell domains apart
	// (security.chunks).
	Domain string
	// Timeout limits the wait for chunks that are not here yet, at most the configured get_timeout. With 0, Get does
	// not wait.
	Timeout time.Duration
	Trace   effects.TraceContext // the caller's span (WithTracer)
}

// Get waits until all keys are ready in the pool, for at most Get.Timeout and no longer than the deadline of ctx.
// Chunks that are only offered do not count (see Fetch). Get returns the usable prefix: the pages, in order, of the
// chunks from the first key on that are ready. The caller releases the handle after reading the chunks, also if Get
// returned an error with it: Release makes room, and consumes nothing more.
//
// If a chunk is missing, Get returns an error beside the prefix that names the first missing chunk and the reason.
// NotFound: the chunk is not here when the time is over. Lapsed: the chunk was here, and was kept for its request for
// the configured retention, but no Get asked for it. If the sender reports the end of the request (Sender.EndRequest),
// the Get ends as soon as the report arrives: as SenderFailed if the request failed, and as NotSent if the sender has
// sent all chunks and this chunk is not among the chunks that arrived. Missing chunks must be recomputed. Any other
// error may come with a prefix too. The handle is nil only if the call itself is refused before it starts, for example
// as Invalid.
//
// A Get of more chunks than limits.keys_per_batch waits for the parts in turn, within the one Get.Timeout. The chunks
// of the earlier parts stay pinned while Get waits for the next part, and if a part ends the call early, Get returns
// the prefix that it has.
func (r Receiver) Get(ctx context.Context, g Get) (*Pages, error) {
	if err := r.checkCall("get", g.Keys); err != nil {
		return nil, err
	}
	realm, err := r.node.parseDomain("get", g.Domain)
	if err != nil {
		return nil, err
	}
	call := r.node.startCall("kvferry.get", g.Trace)
	perChunk := 1 // pages of one chunk
	if g.Layered {
		if perChunk = r.node.layers; perChunk == 0 {
			e := argumentError("get", "Layered", "true", "false", "set use_layerwise: true, here and at the senders")
			e.Code = effects.Unsupported
			return nil, e
		}
	}
	until := time.Now().Add(min(g.Timeout, time.Duration(r.node.cfg.GetWaitMax)))
	var pages []effects.Page
	var releases []effects.CommandBody
	var failed error
	for _, run := range splitRuns(len(g.Keys), r.node.keysPerBatch/perChunk) {
		timeout := effects.Duration(0)
		if left := time.Until(until); left > 0 {
			timeout = commandTimeout(ctx, left, 0)
		}
		part := g.Keys[run[0]:run[1]]
		r.node.loop.mailbox.Hold()
		t, err := r.node.submitCommand("get", classWork, &engine.Get{Request: []byte(g.Request), Keys: keysToBytes(part),
			Layered: g.Layered, Realm: realm, Wait: timeout})
		r.node.loop.mailbox.Step()
		if err != nil {
			failed = err
			break
		}
		out := r.node.awaitOutcome(ctx, t, &engine.Abort{Target: t.id})
		if len(out.Pages) > 0 {
			pages, releases = append(pages, out.Pages...), append(releases, &engine.Unpin{Got: t.id})
		}
		if out.Code != effects.OK {
			failed = r.node.getError(ctx, &g, out, len(pages)/perChunk)
			break
		}
	}
	call.end(g.Request, len(pages)/perChunk, failed)
	return r.node.newPages(pages, releases...), failed
}

// getError returns the error of a Get that has only the first chunks; first is the number of chunks that the Get
// has.
func (n *Node) getError(ctx context.Context, g *Get, out Outcome, first int) *Error {
	code, cause := callerCode(ctx, out.Code)
	e := (&Error{Op: "get", Code: code, Count: len(g.Keys) - first, Cause: cause}).withDetails(out.Details)
	lapsed := code == effects.Lapsed
	if lapsed || code == effects.NotFound {
		e.Cause = deadlineCause(ctx)
	}
	switch {
	case code == effects.NotFound:
		e.Remedy = fmt.Sprintf("chunk %d of %d is missing (key %q); compute from this chunk on", first, len(g.Keys), g.Keys[first])
	case lapsed:
		e.Remedy = fmt.Sprintf("chunk %d of %d was kept for %v, but no Get asked for it in that time (key %q); compute from "+
			"this chunk on, or raise retention",
			first, len(g.Keys), time.Duration(n.cfg.ClaimTTL), g.Keys[first])
	}
	return e
}

// Contains returns the number of chunks, from the first key on, that the engine could have now: by Get or Fetch if
// a chunk is here, and by Fetch alone if a sender's offer of the chunk stands (pd_delay_pull). Contains consumes
// nothing and promises nothing for later. It does not count chunks that were pushed layer by layer, because no
// Fetch reads such chunks; to look for them, use a Get with Layered and without a Request.
func (r Receiver) Contains(ctx context.Context, keys []string) (hits int, err error) {
	return r.ContainsOf(ctx, "", keys)
}

// ContainsOf is Contains for the chunks of a trust domain, which is stated as in Get.Domain.
func (r Receiver) ContainsOf(ctx context.Context, domain string, keys []string) (hits int, err error) {
	if len(keys) == 0 {
		return 0, nil
	}
	if err := r.checkCall("contains", keys); err != nil {
		return 0, err
	}
	realm, err := r.node.parseDomain("contains", domain)
	if err != nil {
		return 0, err
	}
	for _, run := range splitRuns(len(keys), r.node.keysPerBatch) {
		part := keys[run[0]:run[1]]
		t, err := r.node.submitCommand("contains", classWork, &engine.Contains{Keys: keysToBytes(part), Realm: realm})
		if err != nil {
			return hits, err
		}
		out := <-t.Done() // The machine answers in the step that takes the command.
		if out.Code != effects.OK && out.Code != effects.NotFound {
			return hits, (&Error{Op: "contains", Code: out.Code, Count: len(keys), Cause: ctx.Err()}).withDetails(out.Details)
		}
		if hits += out.Hits; out.Hits < len(part) {
			break
		}
	}
	return hits, nil
}

// Abandon gives up everything that is kept for a request that will not read it: claims on chunks that are here,
// and offers that were not read, and notifies the senders of these offers.
func (r Receiver) Abandon(request string) error { return r.AbandonWithReason(request, "", 0) }

// AbandonWithReason abandons the request as Abandon does, and records a reason. The request's sender receives the
// reason in the reply to its next end-of-request message (Sender.EndRequest), so that both ends know why the chunks are
// of no use. A reason of more than 240 bytes is cut. The sender is that of the request of this tenant.
func (r Receiver) AbandonWithReason(request, reason string, tenant effects.Tenant) error {
	if err := r.node.requireSide("abandon", config.Receiver); err != nil {
		return err
	}
	if request == "" {
		return argumentError("abandon", "request", "empty", "the proxy's id of the request", "name the request that is given up")
	}
	t, err := r.node.submitCommand("abandon", classEnding, &engine.Abandon{Request: []byte(request), Reason: []byte(reason), Tenant: tenant})
	if err != nil {
		return err
	}
	if out := <-t.Done(); out.Code != effects.OK && out.Code != effects.NotFound {
		return (&Error{Op: "abandon", Code: out.Code}).withDetails(out.Details)
	}
	return nil
}

// checkCall returns an error if the node has no receiver side, or if keys are empty or invalid.
func (r Receiver) checkCall(op string, keys []string) error {
	if err := r.node.requireSide(op, config.Receiver); err != nil {
		return err
	}
	if len(keys) == 0 {
		return argumentError(op, "Keys", "empty", "at least one", "name each chunk by its key")
	}
	return r.node.checkKeys(op, keys)
}

// parseDomain returns the realm of the trust domain that a call states.
func (n *Node) parseDomain(op, domain string) (effects.Realm, error) {
	realm, ours, remedy := n.driver.guard.ParseDomain(domain)
	if ours != "" {
		return 0, argumentError(op, "Domain", effects.SanitizeText([]byte(domain)), ours, remedy)
	}
	return realm, nil
}

func keysToBytes(keys []string) [][]byte {
	all := make([][]byte, len(keys))
	for i, key := range keys {
		all[i] = []byte(key)
	}
	return all
}
