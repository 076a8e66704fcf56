package runtime

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/runtime/config"
)

// A Sender is the prefill side of a node: it fills pages, and pushes them to receivers or, in pull mode, lends them to
// receivers that read them.
type Sender struct{ node *Node }

// A Peer is where a receiver listens, as its configuration says.
type Peer struct {
	Host      string // pd_peer_host: an address or a name
	InitPort  uint16 // one of pd_peer_init_port: takes handshakes
	AllocPort uint16 // one of pd_peer_alloc_port, of the same rank: takes allocations
}

// Put is one batch of a request's chunks: chunk i has the key Keys[i] and lies in page First+i of
// Pages.
type Put struct {
	Peer    Peer
	Request string // the proxy's id of the request; not empty if Last
	Keys    []string
	Pages   *Pages // from Reserve
	First   int    // the page of the first chunk
	// LastChunkTokens is how many tokens the last chunk holds; 0 means a full chunk. The bytes of a
	// partial chunk are the first of its page.
	LastChunkTokens int
	Last            bool          // no batch of this request follows: the proxy is told when all have ended
	Patience        time.Duration // 0: the configured put_timeout. A context's deadline that is earlier counts instead
}

// PutResult is what a Put did.
type PutResult struct {
	Sent    int // chunks that this put brought to the peer
	Skipped int // chunks that the peer had already

	lot *lot // nil where nothing was begun
}

// Returned is closed once nothing reads the pages of this put any more, whatever its outcome: until then the engine
// may read them too, and must not write them. After a push that is nearly always at once. After a pull it is when the
// receiver has said that it has read, and without its word when pd_pull_pending_ttl is over.
// Pages.Release waits for the same.
func (r PutResult) Returned() <-chan struct{} {
	if r.lot == nil {
		return nothingLent
	}
	return r.lot.Returned()
}

var nothingLent = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// TakeBack ends the offer of a put whose pages are still lent: nobody begins to read them any more,
// and Returned is closed soon. Chunks that the receiver has by then stay there. It does nothing to a put whose pages
// are back, and cannot unsay what the proxy was told.
func (s Sender) TakeBack(r PutResult) error {
	if r.lot == nil {
		return nil
	}
	if r.lot.node != s.node {
		return wrong("take back", "PutResult", "of another node", "what a Put of this one returned",
			"call the Sender that put it")
	}
	if r.lot.isReturned() {
		return nil
	}
	for _, put := range r.lot.tickets {
		t, err := s.node.submit("take back", ending, &engine.Abort{Target: put.id})
		if err != nil {
			return err
		}
		if out := <-t.Done(); out.Code != effects.OK && out.Code != effects.NotFound {
			return (&Error{Op: "take back", Code: out.Code}).because(out.Why)
		}
	}
	return nil
}

// Submit is the core form of every call: body is a command of fsm/rank/flows/engine. What it points to must not
// change before the ticket is done. Pages moved this way have no handle: the caller releases them by
// the ticket's ID. What Put says of batches that are refused at once holds here too.
func (s Sender) Submit(body effects.CommandBody) (*Ticket, error) {
	return s.node.submit(fmt.Sprintf("%T", body), work, body)
}

// Reserve takes count pages of the pool, all or none, waiting its turn up to the configured put_timeout or ctx's
// deadline, whichever is earlier; then it ends as NoMemory. The content of the pages is not defined. More than
// limits.keys_per_batch pages come in parts, as they become free; nobody who asks later is served before the last of
// them.
func (s Sender) Reserve(ctx context.Context, count int) (*Pages, error) {
	if err := s.node.wantSide("reserve", config.Sender); err != nil {
		return nil, err
	}
	if pages := int(s.node.pages); count < 1 {
		return nil, wrong("reserve", "count", strconv.Itoa(count), upTo(1, pages), "reserve a page for each chunk")
	} else if count > pages {
		return nil, tooLarge("reserve", "count", strconv.Itoa(count), "at most the "+strconv.Itoa(pages)+" pages of the pool",
			"reserve fewer, or enlarge "+s.node.poolKey)
	} else if share := int(s.node.share); count > share {
		return nil, tooLarge("reserve", "count", strconv.Itoa(count), fmt.Sprintf("at most %d of the %d pages of the pool",
			share, pages), "reserve fewer, or raise engine_share_pct or "+s.node.poolKey)
	}
	var bodies, releases []effects.CommandBody
	for _, run := range cut(count, s.node.batch) {
		bodies = append(bodies, &engine.Reserve{Count: uint32(run[1] - run[0]),
			Patience: patienceOf(ctx, 0, s.node.cfg.PutTimeout)})
	}
	s.node.loop.mailbox.Hold()
	begun, err := s.node.submitAll("reserve", work, bodies, func([]*Ticket) {})
	s.node.loop.mailbox.Step()
	if err != nil {
		return nil, err
	}
	var pages []effects.Page
	var failed Outcome
	for i, out := range s.node.awaitAll(ctx, begun, abortOf) {
		if out.Code == effects.OK {
			pages, releases = append(pages, out.Pages...), append(releases, &engine.Release{Reserved: begun.tickets[i].id})
		} else if failed.Code == effects.OK {
			failed = out
		}
	}
	for i := range pages {
		pages[i].Length = uint32(s.node.pageBytes) // All of it may be filled.
	}
	got := s.node.newPages(pages, releases...)
	got.own = true
	if failed.Code != effects.OK {
		got.discard() // All or none.
		code, cause := endOf(ctx, failed.Code)
		if code == effects.NoMemory {
			cause = outOfTime(ctx)
		}
		return nil, (&Error{Op: "reserve", Code: code, Count: count, Cause: cause}).because(failed.Why)
	}
	return got, nil
}

func abortOf(t effects.Ticket) effects.CommandBody { return &engine.Abort{Target: t} }

// Put pushes one batch, or in pull mode offers it, and returns when it has ended: the receiver has what it will have of
// the batch. It may run while other Puts do.
//
// The outcome and the memory are two things: the pages may still be lent when Put returns, also with an error. See
// PutResult.Returned.
//
// More chunks than limits.keys_per_batch, or than one message of limits.message_bytes can name, are put in parts, in
// their order, and a push of more than 1,024 is, too, so that one part moves while the next is asked for: each is asked
// for, moved and ends by itself, within the one Patience, and the proxy is told after the last part that has to end. An
// error is that of the first part that failed, with the number of chunks of all that did; the others are at the
// receiver. The result counts over all of them, and Returned is of all.
//
// A Put that fails counts its chunks as missing in what the proxy is told. One that is refused at once (TooMany because
// a table is full, Invalid, TooLarge, Mismatch, Draining, Ended) never became part of its request: its chunks do not
// count, and if it was to be the last, the request goes on without a last batch. Put it again, or tell the proxy by
// other means.
func (s Sender) Put(ctx context.Context, p Put) (PutResult, error) {
	whole, err := s.putCommand(ctx, &p)
	if err != nil {
		return PutResult{}, err
	}
	parts, bodies, err := s.cutPut(whole)
	if err != nil {
		return PutResult{}, err
	}
	s.node.loop.mailbox.Hold()
	begun, err := p.Pages.lend("put", func() (*lot, error) {
		return s.node.submitAll("put", work, bodies, func(tickets []*Ticket) {
			parts[0].Follow = uint32(len(parts) - 1)
			for _, part := range parts[1:] {
				part.First = tickets[0].id
			}
		})
	})
	s.node.loop.mailbox.Step()
	if err != nil {
		return PutResult{}, err
	}
	res, failed, missing := PutResult{lot: begun}, Outcome{}, 0
	for i, out := range s.node.awaitAll(ctx, begun, abortOf) {
		res.Sent, res.Skipped = res.Sent+out.Sent, res.Skipped+out.Skipped
		if out.Code != effects.OK {
			if missing += len(parts[i].Keys); failed.Code == effects.OK {
				failed = out
			}
		}
	}
	if failed.Code != effects.OK {
		code, cause := endOf(ctx, failed.Code)
		return res, (&Error{Op: "put", Code: code, Count: missing, Cause: cause}).because(failed.Why)
	}
	return res, nil
}

const (
	// pipelineChunks is how many chunks a part of a push has: fewer would cost more in messages than is gained by moving
	// some while others are asked for.
	pipelineChunks = 1024
	// pipelineParts is how many parts of one push there are for that reason: as many as link.window lets be under way.
	pipelineParts = 16
)

// cutPut cuts a put where it is too large for one command or one message, or where parts are sooner done. What a
// machine would refuse of one part alone is looked for here, so that it takes all of them or none.
func (s Sender) cutPut(whole *engine.Put) (parts []*engine.Put, bodies []effects.CommandBody, err error) {
	most := len(whole.Keys)
	if !s.node.cfg.Pull {
		most = max(pipelineChunks, (most+pipelineParts-1)/pipelineParts)
	}
	for from := 0; from < len(whole.Keys); {
		part := *whole
		n := s.node.machine.PutFits(whole.Keys[from:]) // Of the configuration alone, so not the loop's to ask.
		if n == 0 {
			return nil, nil, tooLarge("put", "Keys["+strconv.Itoa(from)+"]", strconv.Itoa(len(whole.Keys[from]))+" bytes",
				"what a message holds", "raise limits.message_bytes at both ends, or shorten the model's name")
		}
		n = min(n, most)
		part.Keys, part.Pages = whole.Keys[from:from+n], whole.Pages[from:from+n]
		if from += n; from < len(whole.Keys) {
			part.Last, part.LastChunkTokens = false, s.node.layout.Tokens()
		}
		parts, bodies = append(parts, &part), append(bodies, &part)
	}
	return parts, bodies, nil
}

func (s Sender) putCommand(ctx context.Context, p *Put) (*engine.Put, error) {
	if err := s.node.wantSide("put", config.Sender); err != nil {
		return nil, err
	}
	if err := s.node.checkPut(p); err != nil {
		return nil, err
	}
	if err := s.node.checkKeys("put", p.Keys); err != nil {
		return nil, err
	}
	layout := s.node.layout
	tokens := layout.Tokens()
	if p.LastChunkTokens > 0 {
		tokens = uint32(p.LastChunkTokens)
	}
	lastBytes, err := layout.ChunkBytes(tokens)
	if err != nil {
		return nil, wrong("put", "LastChunkTokens", strconv.Itoa(p.LastChunkTokens), "a length that the layout has",
			err.Error())
	}
	keys := make([][]byte, len(p.Keys))
	pages := make([]effects.Page, len(p.Keys))
	for i, key := range p.Keys {
		keys[i] = []byte(key)
		pages[i] = p.Pages.pages[p.First+i]
		pages[i].Length = uint32(s.node.pageBytes)
	}
	pages[len(pages)-1].Length = uint32(lastBytes)
	return &engine.Put{Peer: engine.Peer(p.Peer), Request: []byte(p.Request), Keys: keys, Pages: pages, Layout: layout,
		LastChunkTokens: tokens, Last: p.Last, Patience: patienceOf(ctx, p.Patience, s.node.cfg.PutTimeout)}, nil
}

// Drain refuses new work and ends what is open, within patience; Close does it by itself. It returns
// how many things were still out when patience ended.
func (n *Node) Drain(ctx context.Context) (left int, err error) {
	n.tickets.refuse(effects.Draining)
	t, err := n.submit("drain", ending, &rank.Drain{Patience: patienceOf(ctx, 0, nanos(n.drainTimeout))})
	if err != nil {
		return 0, err
	}
	out := <-t.Done()
	if out.Code != effects.OK {
		return out.Left, &Error{Op: "drain", Code: out.Code, Count: out.Left, Remedy: fmt.Sprintf(
			"%d still out, of commands, page handles and notifications; release all pages, look whether the proxy "+
				"takes what it is told, or raise pd_shutdown_timeout_sec", out.Left)}
	}
	return 0, nil
}
