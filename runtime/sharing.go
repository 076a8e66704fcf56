package runtime

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/flows/p2p"
)

// Sharing is the side of a node that shares (enable_p2p): what its engine has computed is a cache that peers read, and
// it reads what they have. A node without it refuses its calls as Unsupported.
type Sharing struct{ node *Node }

// Sharing is the node's shared cache; a node that does not share refuses its commands.
func (n *Node) Sharing() Sharing { return Sharing{n} }

// Node is the node that this side belongs to.
func (s Sharing) Node() *Node { return s.node }

// Reserve takes count pages of the pool for the engine to fill, as [Sender.Reserve] does. What the cache has makes
// room.
func (s Sharing) Reserve(ctx context.Context, count int) (*Pages, error) {
	if err := s.node.wantSharing("reserve"); err != nil {
		return nil, err
	}
	return Sender(s).Reserve(ctx, count)
}

// Store makes pages the cache's: chunk i has the key Keys[i] and fills page first+i, which the handle has no more. From
// then on peers may read it, and directories are told. It stays until its page is wanted for another chunk; one that is
// there already is left as it is. The other pages of the handle stay the engine's.
//
// More chunks than limits.keys_per_batch are stored in parts; an error counts those that were not. Where directories
// are told, a key whose chunk hash has more than 64 bits is Invalid: none of them can name it.
func (s Sharing) Store(_ context.Context, keys []string, pages *Pages, first int) error {
	n := s.node
	if err := n.checkStore("store", keys, pages, first); err != nil {
		return err
	}
	for done := 0; done < len(keys); {
		at := first + done
		part := min(len(keys)-done, n.batch-at%n.batch) // Of one of the reserves that the handle is of.
		body := &engine.Store{
			Reserved: pages.releases[at/n.batch].(*engine.Release).Reserved, Keys: keyBytes(keys[done : done+part]),
			Pages: pages.pages[at : at+part],
		}
		if err := pages.give("store", at, part, func() error {
			t, err := n.submit("store", work, body)
			if err != nil {
				return err
			}
			if out := <-t.Done(); out.Code != effects.OK { // Answered by the step that takes it.
				return (&Error{Op: "store", Code: out.Code}).because(out.Why)
			}
			return nil
		}); err != nil {
			if e := (*Error)(nil); errors.As(err, &e) {
				e.Count = len(keys) - done // Whatever refused it.
			}
			return err
		}
		done += part
	}
	return nil
}

// checkStore says what is wrong with a Store or a Share.
func (n *Node) checkStore(op string, keys []string, pages *Pages, first int) error {
	if err := n.wantSharing(op); err != nil {
		return err
	}
	if pages == nil || pages.node != n || !pages.own {
		given := "nil"
		if pages != nil {
			if given = "of another node"; pages.node == n {
				given = "of a Get, which the cache has"
			}
		}
		return wrong(op, "pages", given, "a handle of Reserve of this node", "reserve them from this Sharing")
	}
	switch count, all := len(keys), pages.Len(); {
	case count == 0:
		return wrong(op, "keys", "empty", "at least one", "name each chunk by its key")
	case count > all:
		return wrong(op, "len(keys)", strconv.Itoa(count), "at most "+strconv.Itoa(all),
			"the handle has no page for each: reserve as many as there are keys")
	case first < 0 || first > all-count:
		return wrong(op, "first", strconv.Itoa(first), upTo(0, all-count), "each key takes a page from there on")
	}
	if err := n.checkKeys(op, keys); err != nil {
		return err
	}
	return n.checkTold(op, keys)
}

// SharingPeer is where a peer shakes hands: its p2p_host and one of its p2p_init_ports.
type SharingPeer struct {
	Host     string
	InitPort uint16
}

// SharedGet names chunks that an engine wants, in order.
type SharedGet struct {
	Request string // that they are for; it is told to peers, and must not be empty
	Keys    []string
	From    SharingPeer // who has them; nobody: directories are asked
	// 0: the configured extra_config.p2p_sync_get_timeout_s. A context's deadline that is earlier counts instead
	Patience time.Duration
}

// Get returns the longest prefix that is here or that peers have, which is read from them first: as many pages, in
// order, as chunks from the first key on. They are only to be read; release the handle then.
//
// Where a chunk is missing the error is NotFound and says which is the first, beside the prefix; compute from it on. So
// it is where directories are down, know of nobody or name who has nothing any more. TooMany: who has them serves as
// many others as it may (p2p_max_concurrent_gets), or this node does; ask again. With From that peer is asked alone,
// and what became of it is the error: Unreachable, Expired, or as it says. NoMemory is this node's own. Chunks beyond
// what one message holds come in parts, one after the other.
func (s Sharing) Get(ctx context.Context, g SharedGet) (*Pages, error) {
	n := s.node
	if err := n.checkSharedGet("get", &g); err != nil {
		return nil, err
	}
	until, request, keys := n.sharedUntil(&g), []byte(g.Request), keyBytes(g.Keys)
	var pages []effects.Page
	var releases []effects.CommandBody
	var failed error
	for len(pages) < len(keys) && failed == nil {
		rest := keys[len(pages):]
		out, err := n.bring(ctx, "get", &g, n.sharedMode, rest, len(pages), until)
		if err != nil {
			failed = err
			break
		}
		if out.Hits > 0 {
			t, err := n.submit("get", work, &engine.Get{Request: request, Keys: rest[:out.Hits]})
			if err != nil {
				failed = err
				break
			}
			got := <-t.Done() // It waits for nothing.
			if len(got.Pages) > 0 {
				pages, releases = append(pages, got.Pages...), append(releases, &engine.Unpin{Got: t.id})
			}
		}
		if out.Code != effects.OK {
			failed = sharedEnded(ctx, "get", &g, out, len(pages))
		}
	}
	return n.newPages(pages, releases...), failed
}

// sharedUntil is when a get must have come to its end.
func (n *Node) sharedUntil(g *SharedGet) time.Time {
	if g.Patience > 0 {
		return time.Now().Add(g.Patience)
	}
	return time.Now().Add(time.Duration(n.cfg.BringTimeout))
}

// bring has the first of some chunks brought, as many as fit a message. They are those of a get from the chunk at on.
func (n *Node) bring(ctx context.Context, op string, g *SharedGet, mode p2p.Mode, rest [][]byte, at int,
	until time.Time) (Outcome, error) {
	request := []byte(g.Request)
	fits := n.machine.BringFits(request, rest, mode) // Of the configuration alone, so not the loop's to ask.
	if fits == 0 {
		return Outcome{}, tooLarge(op, "Keys["+strconv.Itoa(at)+"]", strconv.Itoa(len(rest[0]))+" bytes",
			"what a message holds", "raise limits.message_bytes at both ends, or shorten the model's name")
	}
	t, err := n.submit(op, work, &p2p.Bring{From: p2p.Peer(g.From), Request: request, Keys: rest[:fits], Mode: mode,
		Patience: patienceOf(ctx, max(time.Until(until), 1), 0)})
	if err != nil {
		return Outcome{}, err
	}
	return n.await(ctx, t, &engine.Abort{Target: t.id}), nil
}

// sharedEnded is the error of a Get or a Keep that has the first chunks only.
func sharedEnded(ctx context.Context, op string, g *SharedGet, out Outcome, first int) *Error {
	code, cause := endOf(ctx, out.Code)
	e := (&Error{Op: op, Code: code, Count: len(g.Keys) - first, Cause: cause}).because(out.Why)
	if code == effects.NotFound {
		nowhere := fmt.Sprintf("chunk %d of %d is nowhere (key %q); compute from it on", first, len(g.Keys), g.Keys[first])
		if e.Remedy != "" { // Of why its peer did not say.
			nowhere += ". " + e.Remedy
		}
		e.Remedy = nowhere
	}
	return e
}

// checkSharedGet says what is wrong with a Get or a Keep.
func (n *Node) checkSharedGet(op string, g *SharedGet) error {
	if err := n.wantSharing(op); err != nil {
		return err
	}
	if err := plainHost(op, "From.Host", &g.From.Host); err != nil {
		return err
	}
	switch {
	case len(g.Keys) == 0:
		return wrong(op, "Keys", "empty", "at least one", "name each chunk by its key")
	case g.Request == "":
		return wrong(op, "Request", "empty", "the id of the request", "name the request that the chunks are for")
	case len(g.Request) > int(n.cfg.RequestIDMax):
		return tooLarge(op, "Request", strconv.Itoa(len(g.Request))+" bytes", "at most "+strconv.Itoa(int(n.cfg.RequestIDMax)),
			"shorten it, or raise limits.request_bytes")
	case g.Patience < 0:
		return wrong(op, "Patience", fmt.Sprint(g.Patience), "0 or more", "leave it 0 for p2p_sync_get_timeout_s")
	case g.From == SharingPeer{} && !n.directories:
		e := wrong(op, "From", "nobody", "a peer", "name who has the chunks, or set enable_controller: true and name a "+
			"controller that knows")
		e.Code = effects.Unsupported
		return e
	}
	if err := n.checkKeys(op, g.Keys); err != nil || g.From != (SharingPeer{}) {
		return err
	}
	return n.checkTold(op, g.Keys)
}

// Lookup says how many chunks, from the first key on, are here, and how many of them one other node has, as directories
// know: a hint, which may be old. It brings nothing. Directories look at the first 1,000 chunks.
func (s Sharing) Lookup(ctx context.Context, keys []string) (local, remote int, err error) {
	n := s.node
	if err := n.wantSharing("lookup"); err != nil {
		return 0, 0, err
	}
	if local, err = Receiver(s).Contains(ctx, keys); err != nil || len(keys) == 0 {
		return local, 0, err
	}
	if err := n.checkTold("lookup", keys); err != nil {
		return local, 0, err
	}
	t, err := n.submit("lookup", work, &p2p.Locate{Keys: keyBytes(keys[:min(len(keys), n.batch)]),
		Patience: patienceOf(ctx, 0, n.cfg.BringTimeout)})
	if err != nil {
		return local, 0, err
	}
	out := n.await(ctx, t, &engine.Abort{Target: t.id})
	if out.Code != effects.OK {
		code, cause := endOf(ctx, out.Code)
		return local, 0, (&Error{Op: "lookup", Code: code, Count: len(keys), Cause: cause}).because(out.Why)
	}
	return local, out.Hits, nil
}

// wantSharing refuses calls of a node that does not share.
func (n *Node) wantSharing(op string) error {
	if n.cfg.Shares {
		return nil
	}
	if err := n.tickets.isOver(op); err != nil {
		return err // Which is more than that.
	}
	e := wrong(op, "enable_p2p", "false", "true", "set enable_p2p: true")
	e.Code = effects.Unsupported
	return e
}
