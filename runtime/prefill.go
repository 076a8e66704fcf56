package runtime

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/flows/layerwise"
	"github.com/kvferry/kvferry/runtime/config"
)

// Prefill describes a request that a sender pushes layer by layer, while the engine computes the chunks
// (use_layerwise).
//
// Example of a request with two chunks and two layers: BeginPrefill starts the handshake with the peer. The engine
// computes layer 0 and calls SaveLayer for it, and the layer's bytes are sent while the engine computes layer 1.
// After SaveLayer of layer 1, FinishPrefill sends the rest and returns when the peer has both chunks whole.
type Prefill struct {
	// Peer is the receiver of the chunks. Without a host the request has no receiver: no chunk is sent, and no
	// page is kept.
	Peer    Peer
	Request string // the proxy's id of the request
	// Keys are the keys of the whole chunks, from the first token of the request on. The last key may be of a
	// partial chunk.
	Keys []string
	// Skip is the number of tokens at the beginning that the receiver already has or does not want. Chunks that
	// lie completely within these tokens are never sent.
	Skip int
	// LayerTime is the time to compute one layer of all chunks, or 0 if it is not known. From LayerTime and
	// layerwise.link_bytes the node decides whether the request is sent layer by layer, or as a whole when it is
	// finished.
	LayerTime time.Duration
	Trace     effects.TraceContext // the caller's span (WithTracer); below it is that of the push, until FinishPrefill ends
}

// BeginPrefill begins a request. The handshake with its peer runs beside the first layers. The caller must finish
// or drop each request that it began. If nothing of a request is saved for layerwise.run_ttl, the node forgets the
// request, and another request may then use its name; a [Sender.OpenPrefill] handle is never confused with such
// another request.
func (s Sender) BeginPrefill(p Prefill) error {
	_, err := s.OpenPrefill(p)
	return err
}

// A PrefillHandle is a handle of a request that was begun, for callers for which the name of the request is not
// precise enough. Its methods are the methods of [Sender] with these names. They never act on another request of
// the same name: if the handle's own request is forgotten, they fail as NotFound, at the latest Finish does.
type PrefillHandle struct {
	node   *Node
	record *prefillRecord
}

// OpenPrefill begins a request as BeginPrefill does, and returns a handle of the request.
func (s Sender) OpenPrefill(p Prefill) (*PrefillHandle, error) {
	n := s.node
	if err := n.checkPrefill(&p); err != nil {
		return nil, err
	}
	tokens := int(n.layout.TokenCount())
	r := &prefillRecord{id: []byte(p.Request), keys: keysToBytes(p.Keys), firstSendable: p.Skip / tokens, noReceiver: p.Peer.Host == "",
		saved: make([]int, n.layers), tokens: make([]int, n.layers), lastCommand: time.Now()}
	for i := range r.saved {
		r.saved[i] = r.firstSendable
	}
	t, err := n.submitCommand("begin prefill", classWork, &layerwise.Begin{Peer: engine.Peer(p.Peer), Request: r.id,
		Skip: uint32(p.Skip), Trace: n.startSpan(p.Trace),
		Figures: layerwise.Figures{Chunks: uint32(max(0, len(p.Keys)-r.firstSendable)), ComputeNS: uint64(p.LayerTime),
			LinkBytes: n.prefills.linkBytes, BatchNS: uint64(n.prefills.batchTime)}})
	if err != nil {
		return nil, err
	}
	if out := <-t.Done(); out.Code != effects.OK { // The machine answers in the step that takes the command.
		return nil, (&Error{Op: "begin prefill", Code: out.Code}).withDetails(out.Details)
	}
	r.run = t.id
	n.prefills.addRecord(p.Request, r)
	return &PrefillHandle{n, r}, nil
}

// SaveLayer reports that one layer of the first tokensDone tokens of a request is computed, and lies in p. The
// chunks that became whole since the last SaveLayer of that layer are sent now, each once. SaveLayer returns at
// once.
//
// p is a handle of Reserve with one page for each layer of each of its chunks: of the i-th chunk, layer is in page
// i*Layers+layer, as in the handle that [Receiver.Get] returns. The first chunk of p is the first chunk that was
// not yet saved of the layer for which p was first given. So p may be one handle for the whole request, or one
// handle for each step of a chunked prefill. Tokens after the last whole chunk stay with the engine until
// [Sender.FinishPrefill], which takes them from the last handle that was given. p may be nil if no chunk became
// whole.
//
// SaveLayer never waits for the peer, the network or the event loop. In any state of the node its cost is some
// checks, short locks and one event put into a queue. The queue is bounded: if more than layerwise.wantSave calls
// have pages that are not returned yet, SaveLayer fails as TooMany without any effect, and the caller may repeat
// the call. So SaveLayer may be called where blocking is forbidden, for example in the callback behind a stream's
// event, by which an engine on a device learns that the bytes of a layer are final.
//
// The bytes must not be written until the pages are returned: see Pages.AwaitReturn and Release. A failure of the
// request is the error of a later call, at the latest of FinishPrefill, and then of all further calls. The engine
// may continue the prefill or drop it; FinishPrefill notifies the proxy of the missing chunks.
func (s Sender) SaveLayer(request string, layer, tokensDone int, p *Pages) error {
	r, err := s.node.findPrefill("save layer", request)
	if err != nil {
		return err
	}
	return (&PrefillHandle{s.node, r}).SaveLayer(layer, tokensDone, p)
}

// SaveLayer does what [Sender.SaveLayer] does.
func (x *PrefillHandle) SaveLayer(layer, tokensDone int, p *Pages) error {
	const op = "save layer"
	n, r := x.node, x.record
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := n.checkSave(op, r, layer, tokensDone, p); err != nil {
		return err
	}
	first, err := 0, error(nil)
	from, whole := r.saved[layer], tokensDone/int(n.layout.TokenCount())
	if r.noReceiver {
		r.tokens[layer], r.saved[layer] = tokensDone, max(from, whole)
		return nil
	}
	if p != nil {
		if first, err = p.firstChunkFor(r, from); err != nil {
			return err
		}
	}
	if from < whole {
		if err := n.saveChunks(op, r, layer, tokensDone, p, first); err != nil {
			return err
		}
		r.saved[layer] = whole
	}
	if r.tokens[layer] = tokensDone; p != nil {
		r.lastPages, r.lastFirst = p, first
	}
	return nil
}

// saveChunks submits the new whole chunks of a layer. The caller holds r.mu.
func (n *Node) saveChunks(op string, r *prefillRecord, layer, tokensDone int, p *Pages, first int) error {
	from, whole := r.saved[layer], tokensDone/int(n.layout.TokenCount())
	if end := first + p.Len()/n.layers; p == nil || from < first || whole > end {
		given := "nil"
		if p != nil {
			given = fmt.Sprintf("chunks %d to %d", first, end-1)
		}
		return argumentError(op, "p", given, fmt.Sprintf("chunks %d to %d of layer %d", from, whole-1, layer),
			fmt.Sprintf("give %d pages for each new whole chunk, one for each layer", n.layers))
	}
	var bodies []effects.CommandBody
	for _, run := range splitRuns(whole-from, n.keysPerBatch) {
		at, end := from+run[0], from+run[1]
		body := &layerwise.Save{Request: r.id, Run: r.run, Layer: uint32(layer), Tokens: uint32(tokensDone),
			First: uint32(at), Keys: r.keys[at:end], Pages: make([]effects.Page, 0, end-at)}
		for i := at; i < end; i++ {
			page := p.pages[(i-first)*n.layers+layer]
			page.Length = uint32(n.pageBytes)
			body.Pages = append(body.Pages, page)
		}
		n.stateSums(body.Pages)
		bodies = append(bodies, body)
	}
	if savesMax := int64(n.prefills.savesMax); n.prefills.savesInUse.Load()+int64(len(bodies)) > savesMax {
		return &Error{Op: op, Code: effects.TooMany, Count: int(savesMax), Stage: effects.StageCommand,
			Field: "layerwise.saves", Theirs: strconv.FormatInt(n.prefills.savesInUse.Load(), 10) + " with pages in use",
			Ours: "at most " + strconv.FormatInt(savesMax, 10),
			Remedy: "call again when pages have been returned, or raise layerwise.saves; the peer or the link is slower than " +
				"the engine"}
	}
	l, err := p.lendPages(op, func() (*commandGroup, error) { return n.prefills.submitCounted(n, op, bodies) })
	if err != nil {
		return err
	}
	r.pendingTickets, r.lastCommand = append(r.pendingTickets, l.tickets...), time.Now()
	return nil
}

// PreemptPrefill reports that a request has lost its computed state and will be computed again from Skip on.
// SaveLayer starts again for each layer, and so do handles. Chunks that are whole at the peer stay there and are
// not sent again; all other chunks are. Data in flight is stopped, and its pages are returned as Pages.AwaitReturn
// describes.
func (s Sender) PreemptPrefill(request string) error {
	r, err := s.node.findPrefill("preempt prefill", request)
	if err != nil {
		return err
	}
	return (&PrefillHandle{s.node, r}).Preempt()
}

// Preempt does what [Sender.PreemptPrefill] does.
func (x *PrefillHandle) Preempt() error {
	const op = "preempt prefill"
	n, r := x.node, x.record
	r.mu.Lock()
	// The function releases the lock before the outcome is awaited, so that no SaveLayer waits for the outcome.
	t, err := func() (*Ticket, error) {
		defer r.mu.Unlock()
		if err := r.checkUsable(op); err != nil {
			return nil, err
		}
		t, err := n.submitCommand(op, classWork, &layerwise.Preempt{Request: r.id, Run: r.run})
		if err == nil {
			r.startEpoch()
		}
		return t, err
	}()
	if err != nil {
		return err
	}
	if out := <-t.Done(); out.Code != effects.OK {
		return (&Error{Op: op, Code: out.Code}).withDetails(out.Details)
	}
	return nil
}

// FinishPrefill reports that every layer was saved of all tokens. It sends the tokens after the last whole chunk,
// all layers at once, and returns when the request has ended: the peer has every chunk whole, or the error says
// why not. Then the proxy is notified, once. The request is over after that, whatever the outcome, unless the
// error is Invalid: an Invalid call has no effect.
//
// The result counts chunks: Skipped are the chunks of a request without a receiver. Returned of the result covers
// the pages of the last partial chunk only; Pages.Release waits for all pages.
func (s Sender) FinishPrefill(ctx context.Context, request string) (PutResult, error) {
	r, err := s.node.findPrefill("finish prefill", request)
	if err != nil {
		return PutResult{}, err
	}
	return (&PrefillHandle{s.node, r}).Finish(ctx)
}

// Finish does what [Sender.FinishPrefill] does.
func (x *PrefillHandle) Finish(ctx context.Context) (PutResult, error) {
	const op = "finish prefill"
	n, r := x.node, x.record
	if r.noReceiver {
		return n.finishWithoutReceiver(op, r)
	}
	group, total, err := n.submitFinish(ctx, op, r)
	if err != nil {
		return PutResult{}, err
	}
	out := n.awaitAll(ctx, group, newAbort)[0]
	if out.Code == effects.Invalid { // The machine did not start the command.
		r.mu.Lock()
		r.finishing = false
		r.mu.Unlock()
	} else {
		n.prefills.removeRecord(r)
	}
	res := PutResult{Sent: out.Sent, Skipped: out.Skipped, group: group}
	if out.Code != effects.OK {
		code, cause := callerCode(ctx, out.Code)
		return res, (&Error{Op: op, Code: code, Count: total - out.Sent, Cause: cause}).withDetails(out.Details)
	}
	return res, nil
}

// submitFinish submits a Finish command, and returns its group and the number of chunks that it covers.
func (n *Node) submitFinish(ctx context.Context, op string, r *prefillRecord) (group *commandGroup, total int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.finishing {
		return nil, 0, r.checkUsable(op)
	}
	r.collectOutcomes()
	tokens, size := slices.Max(r.tokens), int(n.layout.TokenCount())
	whole, tailTokens := max(r.firstSendable, tokens/size), tokens%size
	if tokens/size < r.firstSendable {
		tailTokens = 0 // The receiver already had all of the request.
	}
	body := &layerwise.Finish{Request: r.id, Run: r.run, Tokens: uint32(tokens),
		Timeout: commandTimeout(ctx, 0, n.times().put)}
	if r.failure != nil { // The request needs no more data, and ends with the error of its failure.
		tailTokens, body.Tokens = 0, uint32(tokens/size*size)
	} else if layer := slices.IndexFunc(r.tokens, func(t int) bool { return t != tokens }); layer >= 0 {
		return nil, 0, argumentError(op, "layer "+strconv.Itoa(layer), strconv.Itoa(r.tokens[layer])+" tokens saved",
			strconv.Itoa(tokens)+", as for the other layers", "save every layer of all tokens first, or drop the prefill")
	}
	total = whole - r.firstSendable
	if tailTokens == 0 {
		group, err = n.prefills.submitCounted(n, op, []effects.CommandBody{body})
	} else if group, err = n.finishTail(op, r, body, whole, tailTokens); err == nil {
		total++
	}
	if err == nil {
		r.finishing = true
	}
	return group, total, err
}

// finishTail submits a Finish command together with the pages of the last, partial chunk.
func (n *Node) finishTail(op string, r *prefillRecord, body *layerwise.Finish, chunk, tailTokens int) (*commandGroup, error) {
	p := r.lastPages
	if p == nil || chunk < r.lastFirst || (chunk-r.lastFirst+1)*n.layers > p.Len() {
		return nil, argumentError(op, "Pages", "none for chunk "+strconv.Itoa(chunk), strconv.Itoa(n.layers)+" for its "+
			strconv.Itoa(tailTokens)+" tokens, one for each layer", "pass a handle with these pages to the last SaveLayer")
	}
	body.Key = r.keys[chunk]
	for layer := range n.layers {
		page := p.pages[(chunk-r.lastFirst)*n.layers+layer]
		page.Length = uint32(tailTokens) * uint32(n.layout.TokenBytes())
		body.Pages = append(body.Pages, page)
	}
	n.stateSums(body.Pages)
	return p.lendPages(op, func() (*commandGroup, error) { return n.prefills.submitCounted(n, op, []effects.CommandBody{body}) })
}

// finishWithoutReceiver ends a request without a receiver.
func (n *Node) finishWithoutReceiver(op string, r *prefillRecord) (PutResult, error) {
	r.mu.Lock()
	tokens, size := slices.Max(r.tokens), int(n.layout.TokenCount())
	r.mu.Unlock()
	return PutResult{Skipped: max(0, (tokens+size-1)/size-r.firstSendable)}, n.dropPrefill(op, r)
}

// DropPrefill ends a request of which nothing more is to be sent. The proxy is not notified, and the peer drops
// the chunks that are not whole there. The pages of the request are returned as Pages.AwaitReturn describes.
func (s Sender) DropPrefill(request string) error {
	r, err := s.node.findPrefill("drop prefill", request)
	if err != nil {
		return err
	}
	return (&PrefillHandle{s.node, r}).Drop()
}

// Drop does what [Sender.DropPrefill] does.
func (x *PrefillHandle) Drop() error { return x.node.dropPrefill("drop prefill", x.record) }

func (n *Node) dropPrefill(op string, r *prefillRecord) error {
	r.mu.Lock()
	t, err := func() (*Ticket, error) {
		defer r.mu.Unlock()
		if r.finishing {
			return nil, r.checkUsable(op)
		}
		t, err := n.submitCommand(op, classEnding, &layerwise.Drop{Request: r.id, Run: r.run})
		r.finishing = err == nil
		return t, err
	}()
	if err != nil {
		return err
	}
	n.prefills.removeRecord(r)
	if out := <-t.Done(); out.Code != effects.OK && out.Code != effects.NotFound { // NotFound: the machine forgot it.
		return (&Error{Op: op, Code: out.Code}).withDetails(out.Details)
	}
	return nil
}

// AwaitReturn waits until nothing uses the pages of this handle any more for a call that was made so far, such as
// a Put or a SaveLayer; then the engine may write the pages again. It fails if ctx ends first, or if the rank has
// failed.
func (p *Pages) AwaitReturn(ctx context.Context) error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	borrowed := slices.Clone(p.groups)
	p.mu.Unlock()
	for _, l := range borrowed {
		if l.isReturned() {
			continue
		}
		select {
		case <-l.Returned():
		case <-p.node.tickets.failed:
			return &Error{Op: "await return", Code: effects.Failed}
		case <-ctx.Done():
			return &Error{Op: "await return", Code: contextCode(ctx), Count: len(p.pages), Cause: ctx.Err(),
				Remedy: "a transfer still reads the pages; wait again, or release them"}
		}
	}
	return nil
}

// Layers returns the number of pages of a chunk: one for each layer with use_layerwise, else 1.
func (n *Node) Layers() int { return max(1, n.layers) }

// LimitsTenants reports whether the pages of a tenant are limited (tenant_share_pct), so that engines should state the
// tenants of the pages that they reserve.
func (n *Node) LimitsTenants() bool { return n.limitsTenants }

// A prefillRecord is the node's record of a request that is sent by layers. The state of the machine may lag behind
// this record, by the events that wait in the mailbox.
type prefillRecord struct {
	id            []byte
	run           effects.Ticket // number by which the machine knows the request, because a forgotten name may be used again
	keys          [][]byte
	firstSendable int // index of the first chunk that may be sent
	noReceiver    bool

	closed atomic.Bool // the request accepts no more calls, and its handles may be used for another request

	mu             sync.Mutex // never held during a wait
	epoch          int
	saved          []int // by layer: index after the last chunk that was submitted
	tokens         []int // by layer: number of tokens that are reported as computed
	lastPages      *Pages
	lastFirst      int       // index of the first chunk of lastPages
	pendingTickets []*Ticket // tickets with outcomes that have not been collected yet
	failure        *Error
	finishing      bool
	lastCommand    time.Time // time of the last command to the machine about this request
}

// collectOutcomes takes the outcomes that are available, and records the first failure. The caller holds r.mu.
func (r *prefillRecord) collectOutcomes() {
	for len(r.pendingTickets) > 0 {
		select {
		case out := <-r.pendingTickets[0].Done():
			if r.pendingTickets = r.pendingTickets[1:]; out.Code != effects.OK && r.failure == nil {
				r.failure = (&Error{Code: out.Code}).withDetails(out.Details)
			}
		default:
			return
		}
	}
}

// checkUsable returns an error if the request accepts no more calls. The caller holds r.mu.
func (r *prefillRecord) checkUsable(op string) error {
	if r.finishing {
		return &Error{Op: op, Code: effects.Ended, Stage: effects.StageCommand, Field: "request",
			Theirs: strconv.Quote(string(r.id)), Ours: "a request that is neither finished nor dropped", Remedy: "begin it again"}
	}
	if r.collectOutcomes(); r.failure != nil {
		e := *r.failure
		e.Op = op
		return &e
	}
	return nil
}

// startEpoch begins a new epoch, in which all layers are saved anew. The caller holds r.mu.
func (r *prefillRecord) startEpoch() {
	r.epoch++
	for i := range r.saved {
		r.saved[i], r.tokens[i] = r.firstSendable, 0
	}
	r.lastPages, r.lastCommand = nil, time.Now()
}

// firstChunkFor returns the index of the request's chunk that is the first chunk of the handle. If the handle has no
// chunk of the request's current epoch yet, the index from is recorded.
func (p *Pages) firstChunkFor(r *prefillRecord, from int) (first int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.released {
		return 0, argumentError("save layer", "p", "released", "a handle that is not released", "reserve new pages")
	}
	if of := p.layers.prefill; of != nil && of != r && !of.closed.Load() {
		return 0, argumentError("save layer", "p", "of request "+strconv.Quote(truncate(string(of.id))),
			"pages that are used only for this request",
			"reserve separate pages for each request")
	}
	if p.layers.prefill != r || p.layers.epoch != r.epoch {
		p.layers.prefill, p.layers.epoch, p.layers.first = r, r.epoch, from
	}
	return p.layers.first, nil
}

// prefillTable are the requests of a node that are sent by layers.
type prefillTable struct {
	runsMax, savesMax, chunksMax int
	linkBytes                    uint64
	batchTime                    time.Duration

	savesInUse atomic.Int64 // number of commands that still use their pages
	mu         sync.Mutex
	byRequest  map[string]*prefillRecord
}

func newPrefillTable(cfg *config.Config) *prefillTable {
	m, l := &cfg.Machine, &cfg.Layerwise
	return &prefillTable{runsMax: int(m.RunsMax), savesMax: int(m.SavesMax), chunksMax: int(m.ChunksMax),
		linkBytes: l.LinkBytes, batchTime: l.BatchTime, byRequest: map[string]*prefillRecord{}}
}

// submitCounted submits commands that have pages, and counts the commands in saves until their pages are returned.
func (ps *prefillTable) submitCounted(n *Node, op string, bodies []effects.CommandBody) (*commandGroup, error) {
	count := int64(len(bodies))
	ps.savesInUse.Add(count)
	l, err := n.submitAll(op, classWork, bodies, func(tickets []*Ticket) {
		tickets[0].group.onReturned = func() { ps.savesInUse.Add(-count) }
	})
	if err != nil {
		ps.savesInUse.Add(-count)
	}
	return l, err
}

// addRecord records a request that the machine has accepted. If there are too many records, the record with the oldest
// last command to the machine is removed, because the machine has forgotten some request by then.
func (ps *prefillTable) addRecord(request string, r *prefillRecord) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if former := ps.byRequest[request]; former != nil {
		former.closed.Store(true) // The machine has forgotten the former request of this name.
	}
	ps.byRequest[request] = r
	for len(ps.byRequest) > ps.runsMax {
		oldest := ""
		var at time.Time
		for id, record := range ps.byRequest {
			record.mu.Lock()
			if oldest == "" || record.lastCommand.Before(at) {
				oldest, at = id, record.lastCommand
			}
			record.mu.Unlock()
		}
		ps.byRequest[oldest].closed.Store(true)
		delete(ps.byRequest, oldest)
	}
}

func (ps *prefillTable) removeRecord(r *prefillRecord) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	r.closed.Store(true)
	if ps.byRequest[string(r.id)] == r {
		delete(ps.byRequest, string(r.id))
	}
}

// findPrefill returns the record of a request that has begun, or a NotFound error.
func (n *Node) findPrefill(op, request string) (*prefillRecord, error) {
	if err := n.requireLayers(op); err != nil {
		return nil, err
	}
	n.prefills.mu.Lock()
	defer n.prefills.mu.Unlock()
	if r := n.prefills.byRequest[request]; r != nil {
		return r, nil
	}
	e := argumentError(op, "request", strconv.Quote(truncate(request)),
		"a request that has begun, and was neither finished nor dropped",
		"begin it with BeginPrefill")
	e.Code = effects.NotFound
	return nil, e
}

// requireLayers returns an error if the node does not push layers.
func (n *Node) requireLayers(op string) error {
	if err := n.requireSide(op, config.Sender); err != nil || n.layers > 0 {
		return err
	}
	e := argumentError(op, "use_layerwise", "false", "true", "set use_layerwise: true, here and at the receivers")
	e.Code = effects.Unsupported
	return e
}

// checkPrefill returns an error if the fields of a prefill that is to begin are invalid.
func (n *Node) checkPrefill(p *Prefill) error {
	const op = "begin prefill"
	if err := n.requireLayers(op); err != nil {
		return err
	}
	if err := normalizeHost(op, "Peer.Host", &p.Peer.Host); err != nil {
		return err
	}
	tokens := int(n.layout.TokenCount())
	switch {
	case p.Peer.Host == "" && p.Peer != (Peer{}):
		return argumentError(op, "Peer.Host", "empty", "a host", "give the receiver's pd_peer_host, or leave Peer empty for "+
			"a request without a receiver")
	case p.Peer.Host != "" && p.Peer.InitPort == 0:
		return argumentError(op, "Peer.InitPort", "0", "a port", "give the receiver's pd_peer_init_port")
	case p.Peer.Host != "" && p.Peer.AllocPort == 0:
		return argumentError(op, "Peer.AllocPort", "0", "a port", "give the receiver's pd_peer_alloc_port")
	case p.Request == "":
		return argumentError(op, "Request", "empty", "the proxy's id of the request", "name the request that is computed")
	case len(p.Request) > int(n.cfg.RequestIDMax):
		return tooLargeError(op, "Request", strconv.Itoa(len(p.Request))+" bytes", "at most "+strconv.Itoa(int(n.cfg.RequestIDMax)),
			"shorten it, or raise limits.request_bytes")
	case len(p.Keys) == 0:
		return argumentError(op, "Keys", "empty", "at least one", "name each chunk of the request by its key")
	case p.Skip < 0 || p.Skip > len(p.Keys)*tokens:
		return argumentError(op, "Skip", strconv.Itoa(p.Skip), formatRange(0, len(p.Keys)*tokens),
			"give the number of tokens that are not sent")
	case len(p.Keys)-p.Skip/tokens > n.prefills.chunksMax:
		return tooLargeError(op, "Keys", strconv.Itoa(len(p.Keys)), "at most "+strconv.Itoa(n.prefills.chunksMax)+
			" after Skip", "raise layerwise.chunks")
	case p.LayerTime < 0:
		return argumentError(op, "LayerTime", fmt.Sprint(p.LayerTime), "0 or more", "leave it 0 if it is not known")
	}
	return n.checkKeysUpTo(op, p.Keys, n.keyBytesMax-len("@1023"))
}

// checkSave returns an error if the arguments of a SaveLayer are invalid. The caller holds r.mu.
func (n *Node) checkSave(op string, r *prefillRecord, layer, tokensDone int, p *Pages) error {
	if err := r.checkUsable(op); err != nil {
		return err
	}
	tokensMax := len(r.keys) * int(n.layout.TokenCount())
	switch {
	case layer < 0 || layer >= n.layers:
		return argumentError(op, "layer", strconv.Itoa(layer), formatRange(0, n.layers-1), "layers count from 0")
	case tokensDone < r.tokens[layer] || tokensDone > tokensMax:
		return argumentError(op, "tokensDone", strconv.Itoa(tokensDone), formatRange(r.tokens[layer], tokensMax),
			"give the number of tokens for which the layer is computed: at most the tokens of Keys, and fewer than before "+
				"only after PreemptPrefill")
	case p == nil:
		return nil
	case p.node != n || !p.writable:
		return argumentError(op, "p", "from another node, or from a Get", "a handle of this node", "reserve them from this Sender")
	case p.Len()%n.layers != 0:
		return argumentError(op, "p.Len()", strconv.Itoa(p.Len()), "a multiple of "+strconv.Itoa(n.layers),
			"reserve a page for each layer of each chunk")
	}
	return nil
}
