package runtime

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/runtime/config"
)

// A Sender is the prefill side of a node. The engine fills reserved pages, and the Sender pushes the pages to
// receivers or, in pull mode, lends them to receivers that read them.
//
// Example: Reserve takes 8 pages, the engine writes 8 chunks into them, Put sends the chunks with their keys to a
// receiver, and Pages.Release gives the pages back.
type Sender struct{ node *Node }

// A Peer is the address of a receiver. Its fields correspond to keys of the receiver's configuration.
type Peer struct {
	Host      string // pd_peer_host: an address or a name
	InitPort  uint16 // one of pd_peer_init_port: the port for handshakes
	AllocPort uint16 // one of pd_peer_alloc_port, of the same rank: the port for allocation requests
}

// Put describes one batch of a request's chunks: chunk i has the key Keys[i] and lies in page First+i of Pages.
type Put struct {
	Peer    Peer
	Request string // the proxy's id of the request; must not be empty if Last is set
	Keys    []string
	Pages   *Pages // from Reserve
	First   int    // index in Pages of the page of the first chunk
	// LastChunkTokens is the number of tokens in the last chunk; 0 means a full chunk. The bytes of a partial
	// chunk are the first bytes of its page.
	LastChunkTokens int
	Last            bool          // no batch of this request follows; the proxy is notified when all batches have ended
	Timeout         time.Duration // timeout; 0: the configured put_timeout. An earlier deadline of the context replaces it
	// Trace is the caller's span (WithTracer). The receiver continues the trace.
	Trace effects.TraceContext
}

// PutResult reports the effect of a Put.
type PutResult struct {
	Sent    int // number of chunks that this Put brought to the peer
	Skipped int // number of chunks that the peer already had

	group *commandGroup // the commands of the Put; nil if no command was started
}

// Returned returns a channel that is closed when nothing reads the pages of this Put any more, whatever the
// outcome of the Put. Until then the engine may also read the pages, and must not write them. After a push the
// channel is nearly always closed at once. In pull mode it is closed when the receiver reports that it has read
// the pages, or without that report when pd_pull_pending_ttl is over. Pages.Release waits for the same event.
func (r PutResult) Returned() <-chan struct{} {
	if r.group == nil {
		return closedChan
	}
	return r.group.Returned()
}

// closedChan is a closed channel, for the results of commands that use no memory.
var closedChan = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// WithdrawPut ends the offer of a Put while the pages of the Put are still lent: no new read of the pages starts, and
// the Returned channel is closed soon afterwards. Chunks that the receiver has by then stay at the receiver.
// WithdrawPut does nothing if the pages are back already, and cannot retract a notification that the proxy has
// received. It fails if r is the result of another node.
func (s Sender) WithdrawPut(r PutResult) error {
	if r.group == nil {
		return nil
	}
	if r.group.node != s.node {
		return argumentError("withdraw put", "PutResult", "of another node", "the result of a Put of this node",
			"call the Sender that made the Put")
	}
	if r.group.isReturned() {
		return nil
	}
	for _, put := range r.group.tickets {
		t, err := s.node.submitCommand("withdraw put", classEnding, &engine.Abort{Target: put.id})
		if err != nil {
			return err
		}
		if out := <-t.Done(); out.Code != effects.OK && out.Code != effects.NotFound {
			return (&Error{Op: "withdraw put", Code: out.Code}).withDetails(out.Details)
		}
	}
	return nil
}

// Submit starts one command of the state machine and returns its ticket; the other methods are built on the same
// mechanism. body is a command of fsm/rank/flows/engine, and the memory that body points to must not change before
// the ticket is done. Pages that such commands use have no handle: the caller releases them by the ticket's ID.
// The comment of Put about batches that are refused at once holds here too.
func (s Sender) Submit(body effects.CommandBody) (*Ticket, error) {
	return s.node.submitCommand(fmt.Sprintf("%T", body), classWork, body)
}

// Reserve takes count pages of the pool, or none. It waits for its turn until the configured put_timeout or the
// deadline of ctx, whichever is earlier, and then fails as NoMemory. The content of the pages is undefined. A
// count of more than limits.keys_per_batch pages is taken in parts, as pages become free; no later Reserve is
// served before the last part.
func (s Sender) Reserve(ctx context.Context, count int) (*Pages, error) {
	return s.ReserveFor(ctx, count, 0)
}

// ReserveFor is Reserve for chunks of a tenant. The pages count in the tenant's share of the pool (tenant_share_pct) from
// now on; pages of Reserve count for the default tenant until a command names chunks for them. While the share keeps a
// call waiting, calls for other tenants are served.
func (s Sender) ReserveFor(ctx context.Context, count int, tenant effects.Tenant) (*Pages, error) {
	if err := s.node.requireSide("reserve", config.Sender); err != nil {
		return nil, err
	}
	if pages := int(s.node.pages); count < 1 {
		return nil, argumentError("reserve", "count", strconv.Itoa(count), formatRange(1, pages), "reserve a page for each chunk")
	} else if count > pages {
		return nil, tooLargeError("reserve", "count", strconv.Itoa(count), "at most the "+strconv.Itoa(pages)+" pages of the pool",
			"reserve fewer, or enlarge "+s.node.poolKey)
	} else if share := int(s.node.engineShare); count > share {
		return nil, tooLargeError("reserve", "count", strconv.Itoa(count), fmt.Sprintf("at most %d of the %d pages of the pool",
			share, pages), "reserve fewer, or raise engine_share_pct or "+s.node.poolKey)
	}
	var bodies, releases []effects.CommandBody
	for _, run := range splitRuns(count, s.node.keysPerBatch) {
		bodies = append(bodies, &engine.Reserve{Count: uint32(run[1] - run[0]), Tenant: tenant,
			Timeout: commandTimeout(ctx, 0, s.node.times().put)})
	}
	s.node.loop.mailbox.Hold()
	group, err := s.node.submitAll("reserve", classWork, bodies, func([]*Ticket) {})
	s.node.loop.mailbox.Step()
	if err != nil {
		return nil, err
	}
	var pages []effects.Page
	var failed Outcome
	for i, out := range s.node.awaitAll(ctx, group, newAbort) {
		if out.Code == effects.OK {
			pages, releases = append(pages, out.Pages...), append(releases, &engine.Release{Reserved: group.tickets[i].id})
		} else if failed.Code == effects.OK {
			failed = out
		}
	}
	for i := range pages {
		pages[i].Length = uint32(s.node.pageBytes) // The engine may fill the whole page.
	}
	got := s.node.newPages(pages, releases...)
	got.writable = true
	if failed.Code != effects.OK {
		got.returnUnused() // All or none.
		code, cause := callerCode(ctx, failed.Code)
		if code == effects.NoMemory {
			cause = deadlineCause(ctx)
		}
		return nil, (&Error{Op: "reserve", Code: code, Count: count, Cause: cause}).withDetails(failed.Details)
	}
	return got, nil
}

func newAbort(t effects.Ticket) effects.CommandBody { return &engine.Abort{Target: t} }

// Put pushes one batch of chunks or, in pull mode, offers the batch, and returns when the batch has its
// outcome. After a push the receiver gets no more chunks of the batch; pages that are still lent in pull mode may still
// be read, until WithdrawPut or PutResult.Returned. Several Puts may run at the same time.
//
// The outcome of a Put and the use of its memory are separate: the pages may still be lent when Put returns, also
// when Put returns an error. See PutResult.Returned.
//
// A batch is put in parts, in order, if it has more chunks than limits.keys_per_batch, or more than one message of
// limits.message_bytes can name. A push of more than 1,024 chunks is put in parts too, so that one part moves while
// the next part is requested. Each part is requested, moved and ended by itself. All parts share the one Put.Timeout,
// and the proxy is notified after the last part has ended. If parts fail, the error is the error of the first failed
// part, and its Count is the number of chunks of all failed parts; the chunks of the other parts are at the receiver.
// The result sums over all parts, and Returned covers all parts.
//
// If a Put fails, the notification to the proxy counts the Put's chunks as missing. A Put that is refused at once
// (TooMany because a table is full, Invalid, TooLarge, Mismatch, Draining, Ended) never became part of its
// request: its chunks are not counted, and if the Put had Last set, the request continues without a last batch.
// The caller can then put the batch again, or notify the proxy by other means.
func (s Sender) Put(ctx context.Context, p Put) (PutResult, error) {
	whole, err := s.newPutCommand(ctx, &p)
	if err != nil {
		return PutResult{}, err
	}
	parts, bodies, err := s.splitPut(whole, p.Trace)
	if err != nil {
		return PutResult{}, err
	}
	s.node.loop.mailbox.Hold()
	group, err := p.Pages.lendPages("put", func() (*commandGroup, error) {
		return s.node.submitAll("put", classWork, bodies, func(tickets []*Ticket) {
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
	res, failed, missing := PutResult{group: group}, Outcome{}, 0
	for i, out := range s.node.awaitAll(ctx, group, newAbort) {
		res.Sent, res.Skipped = res.Sent+out.Sent, res.Skipped+out.Skipped
		if out.Code != effects.OK {
			if missing += len(parts[i].Keys); failed.Code == effects.OK {
				failed = out
			}
		}
	}
	if failed.Code != effects.OK {
		code, cause := callerCode(ctx, failed.Code)
		return res, (&Error{Op: "put", Code: code, Count: missing, Cause: cause}).withDetails(failed.Details)
	}
	return res, nil
}

const (
	// pipelineChunks is the number of chunks in one part of a push. With smaller parts, the additional messages
	// would cost more than the overlap of moving and requesting gains.
	pipelineChunks = 1024
	// pipelineParts is the limit of parts that one push is cut into for the overlap: the number of parts that
	// link.window allows in flight.
	pipelineParts = 16
)

// splitPut cuts a Put that is too large for one command or one message, or that is faster in parts. It checks here
// what the machine could refuse of a single part, so that the machine takes all parts or none.
func (s Sender) splitPut(whole *engine.Put, parent effects.TraceContext) (parts []*engine.Put, bodies []effects.CommandBody, err error) {
	partMax := len(whole.Keys)
	if !s.node.cfg.Pull {
		partMax = max(pipelineChunks, (partMax+pipelineParts-1)/pipelineParts)
	}
	for from := 0; from < len(whole.Keys); {
		part := *whole
		part.Trace = s.node.startSpan(parent)
		// PutFits depends only on the configuration, so it need not run on the loop.
		n := s.node.machine.PutFits(whole.Keys[from:])
		if n == 0 {
			return nil, nil, tooLargeError("put", "Keys["+strconv.Itoa(from)+"]", strconv.Itoa(len(whole.Keys[from]))+" bytes",
				"at most the size of a message", "raise limits.message_bytes at both ends, or shorten the model's name")
		}
		n = min(n, partMax)
		part.Keys, part.Pages = whole.Keys[from:from+n], whole.Pages[from:from+n]
		if from += n; from < len(whole.Keys) {
			part.Last, part.LastChunkTokens = false, s.node.layout.TokenCount()
		}
		parts, bodies = append(parts, &part), append(bodies, &part)
	}
	return parts, bodies, nil
}

// newPutCommand checks a Put and returns the command for the whole batch, with the length of each page.
func (s Sender) newPutCommand(ctx context.Context, p *Put) (*engine.Put, error) {
	if err := s.node.requireSide("put", config.Sender); err != nil {
		return nil, err
	}
	if err := s.node.checkPut(p); err != nil {
		return nil, err
	}
	if err := s.node.checkKeys("put", p.Keys); err != nil {
		return nil, err
	}
	layout := s.node.layout
	tokens := layout.TokenCount()
	if p.LastChunkTokens > 0 {
		tokens = uint32(p.LastChunkTokens)
	}
	lastBytes, err := layout.ChunkBytes(tokens)
	if err != nil {
		return nil, argumentError("put", "LastChunkTokens", strconv.Itoa(p.LastChunkTokens), "a length that the layout allows",
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
	s.node.stateSums(pages)
	return &engine.Put{Peer: engine.Peer(p.Peer), Request: []byte(p.Request), Keys: keys, Pages: pages, Layout: layout,
		LastChunkTokens: tokens, Last: p.Last, Timeout: commandTimeout(ctx, p.Timeout, s.node.times().put)}, nil
}
