package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/flows/p2p"
)

// Sharing is the side of a node that shares its cache (enable_p2p). The chunks that its engine has computed form a
// cache that peers can read, and the node reads chunks from the caches of its peers. Without enable_p2p the
// methods fail as Unsupported.
//
// Example: Reserve takes pages, the engine fills them, and Store passes them to the cache. Later a peer calls Get
// with the same keys; it finds this node through a directory, and reads the chunks.
type Sharing struct{ node *Node }

// Sharing returns the shared cache of the node. If the node does not share, the methods of the Sharing fail.
func (n *Node) Sharing() Sharing { return Sharing{n} }

// Node returns the node that this side belongs to.
func (s Sharing) Node() *Node { return s.node }

// Reserve takes count pages of the pool for the engine to fill, as [Sender.Reserve] does. Chunks of the cache are
// evicted to make room.
func (s Sharing) Reserve(ctx context.Context, count int) (*Pages, error) {
	return s.ReserveFor(ctx, count, 0)
}

// ReserveFor is Reserve for chunks of a tenant, as [Sender.ReserveFor].
func (s Sharing) ReserveFor(ctx context.Context, count int, tenant effects.Tenant) (*Pages, error) {
	if err := s.node.requireSharing("reserve"); err != nil {
		return nil, err
	}
	return Sender(s).ReserveFor(ctx, count, tenant)
}

// Store passes pages to the cache: chunk i has the key keys[i] and fills page first+i, which does not belong to
// the handle any more. From then on peers may read the chunk, and directories are notified. The chunk stays until
// its page is needed for another chunk. A chunk that the cache already has is left unchanged. The other pages of
// the handle still belong to the engine.
//
// More chunks than limits.keys_per_batch are stored in parts; the Count of an error is the number of chunks that
// were not stored. If directories are notified, a key with a chunk hash of more than 64 bits is Invalid, because
// directories cannot name such a chunk.
func (s Sharing) Store(_ context.Context, keys []string, pages *Pages, first int) error {
	n := s.node
	if err := n.checkStore("store", keys, pages, first); err != nil {
		return err
	}
	for done := 0; done < len(keys); {
		at := first + done
		part := min(len(keys)-done, n.keysPerBatch-at%n.keysPerBatch) // Within one of the Reserve commands behind the handle.
		body := &engine.Store{
			Reserved: pages.releases[at/n.keysPerBatch].(*engine.Release).Reserved, Keys: keysToBytes(keys[done : done+part]),
			Pages: slices.Clone(pages.pages[at : at+part]),
		}
		n.stateSums(body.Pages)
		if err := pages.passToCache("store", at, part, func() error {
			t, err := n.submitCommand("store", classWork, body)
			if err != nil {
				return err
			}
			if out := <-t.Done(); out.Code != effects.OK { // The machine answers in the step that takes the command.
				return (&Error{Op: "store", Code: out.Code}).withDetails(out.Details)
			}
			return nil
		}); err != nil {
			if e := (*Error)(nil); errors.As(err, &e) {
				e.Count = len(keys) - done // Whatever caused the error.
			}
			return err
		}
		done += part
	}
	return nil
}

// checkStore returns an error if the arguments of a Store or a Share are invalid.
func (n *Node) checkStore(op string, keys []string, pages *Pages, first int) error {
	if err := n.requireSharing(op); err != nil {
		return err
	}
	if pages == nil || pages.node != n || !pages.writable {
		given := "nil"
		if pages != nil {
			if given = "of another node"; pages.node == n {
				given = "from a Get, which belongs to the cache"
			}
		}
		return argumentError(op, "pages", given, "a handle of Reserve of this node", "reserve them from this Sharing")
	}
	switch count, all := len(keys), pages.Len(); {
	case count == 0:
		return argumentError(op, "keys", "empty", "at least one", "name each chunk by its key")
	case count > all:
		return argumentError(op, "len(keys)", strconv.Itoa(count), "at most "+strconv.Itoa(all),
			"the handle has too few pages: reserve one page for each key")
	case first < 0 || first > all-count:
		return argumentError(op, "first", strconv.Itoa(first), formatRange(0, all-count),
			"the handle needs a page for each key, from this index on")
	}
	if err := n.checkKeys(op, keys); err != nil {
		return err
	}
	return n.checkReportableKeys(op, keys)
}

// SharingPeer is the handshake address of a peer: the peer's p2p_host and one of its p2p_init_ports.
type SharingPeer struct {
	Host     string
	InitPort uint16
}

// SharedGet names chunks that an engine wants, in order.
type SharedGet struct {
	Request string // id of the request that the chunks are for; it is sent to peers, and must not be empty
	Keys    []string
	From    SharingPeer // the peer that has the chunks; zero: directories are queried
	// Timeout is the timeout; 0 means the configured extra_config.p2p_sync_get_timeout_s. An earlier deadline of
	// the context replaces it.
	Timeout time.Duration
	Trace   effects.TraceContext // the caller's span (WithTracer)
}

// Get returns the longest prefix of the chunks that this node or its peers have; chunks of peers are read into the
// pool first. The handle has one page per chunk, in order, from the first key on. The pages must only be read, and
// the caller releases the handle afterwards.
//
// If a chunk is missing, the error beside the prefix is NotFound and names the first missing chunk; the engine
// computes the chunks from there on. The error is also NotFound if directories are down, know no holder, or name a
// peer that no longer has the chunk. TooMany means that the peer, or this node, already serves as many gets as
// p2p_max_concurrent_gets allows; the caller may retry. With From only that peer is asked, and its failure is the
// error: Unreachable, Expired, or the code in the peer's reply. NoMemory is a lack of pages at this node. Chunks
// beyond the capacity of one message are read in parts, one after the other.
func (s Sharing) Get(ctx context.Context, g SharedGet) (*Pages, error) {
	n := s.node
	if err := n.checkSharedGet("get", &g); err != nil {
		return nil, err
	}
	call := n.startCall("kvferry.shared_get", g.Trace)
	g.Trace = call.trace.Context
	until, request, keys := n.sharedGetDeadline(&g), []byte(g.Request), keysToBytes(g.Keys)
	var pages []effects.Page
	var releases []effects.CommandBody
	var failed error
	for len(pages) < len(keys) && failed == nil {
		rest := keys[len(pages):]
		out, err := n.bringChunks(ctx, "get", &g, n.sharedMode, rest, len(pages), until)
		if err != nil {
			failed = err
			break
		}
		if out.Hits > 0 {
			t, err := n.submitCommand("get", classWork, &engine.Get{Request: request, Keys: rest[:out.Hits]})
			if err != nil {
				failed = err
				break
			}
			got := <-t.Done() // The command waits for nothing.
			if len(got.Pages) > 0 {
				pages, releases = append(pages, got.Pages...), append(releases, &engine.Unpin{Got: t.id})
			}
		}
		if out.Code != effects.OK {
			failed = sharedGetError(ctx, "get", &g, out, len(pages))
		}
	}
	call.end(g.Request, len(pages), failed)
	return n.newPages(pages, releases...), failed
}

// sharedGetDeadline returns the time at which a get must have ended.
func (n *Node) sharedGetDeadline(g *SharedGet) time.Time {
	if g.Timeout > 0 {
		return time.Now().Add(g.Timeout)
	}
	return time.Now().Add(time.Duration(n.times().bring))
}

// bringChunks reads the first chunks of rest into the pool, or with the mode Delayed has peers lend them. It handles as
// many chunks as fit into one message. rest are the keys of g from index at on.
func (n *Node) bringChunks(ctx context.Context, op string, g *SharedGet, mode p2p.Mode, rest [][]byte, at int,
	until time.Time) (Outcome, error) {
	request := []byte(g.Request)
	// BringFits depends only on the configuration, so it need not run on the loop.
	fits := n.machine.BringFits(request, rest, mode)
	if fits == 0 {
		return Outcome{}, tooLargeError(op, "Keys["+strconv.Itoa(at)+"]", strconv.Itoa(len(rest[0]))+" bytes",
			"at most the size of a message", "raise limits.message_bytes at both ends, or shorten the model's name")
	}
	t, err := n.submitCommand(op, classWork, &p2p.Bring{From: p2p.Peer(g.From), Request: request, Keys: rest[:fits], Mode: mode,
		Timeout: commandTimeout(ctx, max(time.Until(until), 1), 0), Trace: g.Trace})
	if err != nil {
		return Outcome{}, err
	}
	return n.awaitOutcome(ctx, t, &engine.Abort{Target: t.id}), nil
}

// sharedGetError returns the error of a [Sharing.Get] or a [Sharing.Lease] that has only the first chunks; count is
// their number.
func sharedGetError(ctx context.Context, op string, g *SharedGet, out Outcome, count int) *Error {
	code, cause := callerCode(ctx, out.Code)
	e := (&Error{Op: op, Code: code, Count: len(g.Keys) - count, Cause: cause}).withDetails(out.Details)
	if code == effects.NotFound {
		text := fmt.Sprintf("no node has chunk %d of %d (key %q); compute from this chunk on", count, len(g.Keys), g.Keys[count])
		if e.Remedy != "" { // The reason that the peer gave no chunk.
			text += ". " + e.Remedy
		}
		e.Remedy = text
	}
	return e
}

// checkSharedGet returns an error if the arguments of a [Sharing.Get] or a [Sharing.Lease] are invalid.
func (n *Node) checkSharedGet(op string, g *SharedGet) error {
	if err := n.requireSharing(op); err != nil {
		return err
	}
	if err := normalizeHost(op, "From.Host", &g.From.Host); err != nil {
		return err
	}
	switch {
	case len(g.Keys) == 0:
		return argumentError(op, "Keys", "empty", "at least one", "name each chunk by its key")
	case g.Request == "":
		return argumentError(op, "Request", "empty", "the id of the request", "name the request that the chunks are for")
	case len(g.Request) > int(n.cfg.RequestIDMax):
		return tooLargeError(op, "Request", strconv.Itoa(len(g.Request))+" bytes", "at most "+strconv.Itoa(int(n.cfg.RequestIDMax)),
			"shorten it, or raise limits.request_bytes")
	case g.Timeout < 0:
		return argumentError(op, "Timeout", fmt.Sprint(g.Timeout), "0 or more", "set 0 for p2p_sync_get_timeout_s")
	case g.From == SharingPeer{} && !n.hasDirectories:
		e := argumentError(op, "From", "empty", "a peer", "name a peer that has the chunks, or set enable_controller: true "+
			"and name a controller")
		e.Code = effects.Unsupported
		return e
	}
	if err := n.checkKeys(op, g.Keys); err != nil || g.From != (SharingPeer{}) {
		return err
	}
	return n.checkReportableKeys(op, g.Keys)
}

// Lookup returns local, the number of chunks from the first key on that this node has, and remote, the number of
// chunks from the first key on that a single other node has according to the directories. remote is a hint, which
// may be out of date. Lookup reads no chunk. Directories look at the first 1,000 chunks only.
func (s Sharing) Lookup(ctx context.Context, keys []string) (local, remote int, err error) {
	n := s.node
	if err := n.requireSharing("lookup"); err != nil {
		return 0, 0, err
	}
	if local, err = Receiver(s).Contains(ctx, keys); err != nil || len(keys) == 0 {
		return local, 0, err
	}
	if err := n.checkReportableKeys("lookup", keys); err != nil {
		return local, 0, err
	}
	t, err := n.submitCommand("lookup", classWork, &p2p.Locate{Keys: keysToBytes(keys[:min(len(keys), n.keysPerBatch)]),
		Timeout: commandTimeout(ctx, 0, n.times().bring)})
	if err != nil {
		return local, 0, err
	}
	out := n.awaitOutcome(ctx, t, &engine.Abort{Target: t.id})
	if out.Code != effects.OK {
		code, cause := callerCode(ctx, out.Code)
		return local, 0, (&Error{Op: "lookup", Code: code, Count: len(keys), Cause: cause}).withDetails(out.Details)
	}
	return local, out.Hits, nil
}

// requireSharing returns an error if the node does not share.
func (n *Node) requireSharing(op string) error {
	if n.cfg.Shares {
		return nil
	}
	if err := n.tickets.refusalForWork(op); err != nil {
		return err // The node has ended, which is the more important error.
	}
	e := argumentError(op, "enable_p2p", "false", "true", "set enable_p2p: true")
	e.Code = effects.Unsupported
	return e
}
