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

// Prefill is a request whose chunks a sender pushes layer by layer, while they are computed (use_layerwise).
type Prefill struct {
	// Peer is where they go; without a host nowhere: then nothing of it is sent, and no page is kept.
	Peer    Peer
	Request string // the proxy's id of the request
	// Keys are those of whole chunks, from the first token of the request on. The last may be of less than a chunk.
	Keys []string
	// Skip is how many tokens at its beginning are there already, or nobody's wish: whole chunks of them are never sent.
	Skip int
	// LayerTime is what one layer of all its chunks takes to compute, 0 if that is not known: by that and
	// layerwise.link_bytes it is decided whether the request goes layer by layer, or as a whole when it is finished.
	LayerTime time.Duration
}

// BeginPrefill begins with a request. The handshake with its peer runs beside the first layers. Each request that was
// begun is finished or dropped; one of which nothing is saved for layerwise.run_ttl is forgotten, and another may have
// its name then: [Sender.StartPrefill] returns one that is not meant by that.
func (s Sender) BeginPrefill(p Prefill) error {
	_, err := s.StartPrefill(p)
	return err
}

// A Prefilling is a request that was begun, for whom its name does not do. Its methods are those of [Sender] of these
// names. They never mean another request of the same name: when its own is forgotten they are NotFound, at the latest
// Finish is.
type Prefilling struct {
	node *Node
	of   *prefill
}

// StartPrefill is BeginPrefill, and returns what was begun.
func (s Sender) StartPrefill(p Prefill) (*Prefilling, error) {
	n := s.node
	if err := n.checkPrefill(&p); err != nil {
		return nil, err
	}
	tokens := int(n.layout.Tokens())
	r := &prefill{id: []byte(p.Request), keys: keyBytes(p.Keys), base: p.Skip / tokens, nowhere: p.Peer.Host == "",
		saved: make([]int, n.layers), tokens: make([]int, n.layers), heard: time.Now()}
	for i := range r.saved {
		r.saved[i] = r.base
	}
	t, err := n.submit("begin prefill", work, &layerwise.Begin{Peer: engine.Peer(p.Peer), Request: r.id,
		Skip: uint32(p.Skip),
		Figures: layerwise.Figures{Chunks: uint32(max(0, len(p.Keys)-r.base)), ComputeNS: uint64(p.LayerTime),
			LinkBytes: n.prefills.linkBytes, BatchNS: uint64(n.prefills.batchTime)}})
	if err != nil {
		return nil, err
	}
	if out := <-t.Done(); out.Code != effects.OK { // Answered by the step that takes it.
		return nil, (&Error{Op: "begin prefill", Code: out.Code}).because(out.Why)
	}
	r.run = t.id
	n.prefills.add(p.Request, r)
	return &Prefilling{n, r}, nil
}

// SaveLayer says that one layer of the first tokensDone tokens of a request is computed, and lies in p: what became
// whole chunks of it since the last SaveLayer of that layer goes now, each once. It returns at once.
//
// p is a handle of Reserve with a page for each layer of each of its chunks: of the i-th chunk, layer is in page
// i*Layers+layer, as in what [Receiver.Get] gives. Its first chunk is the first that had not been saved of the layer
// for which it was first given: so it may be one handle for the whole request, or one for each step of a chunked
// prefill. Tokens behind the last whole chunk stay the engine's business until [Sender.FinishPrefill], which takes
// them from the last handle that was given. p may be nil where no chunk became whole.
//
// It never waits: not for the peer, nor the network, nor the event loop. What it costs is some checks, short locks and
// one event put into a queue, in any state of the node. The queue is bounded: beyond layerwise.saves calls whose pages
// are not back it is TooMany, nothing has happened, and the same call may come again. So it may be called where nothing
// must block, such as by the callback behind a stream's event, which is how an engine on a device says that a layer's
// bytes are final.
//
// The bytes must not be written until the pages are back: Pages.AwaitReturn, or Release. What went wrong with the
// request is the error of a later call, at the latest of FinishPrefill, and then that of all of them: the prefill goes
// on, or is dropped, and FinishPrefill tells the proxy what is missing.
func (s Sender) SaveLayer(request string, layer, tokensDone int, p *Pages) error {
	r, err := s.node.prefillOf("save layer", request)
	if err != nil {
		return err
	}
	return (&Prefilling{s.node, r}).SaveLayer(layer, tokensDone, p)
}

// SaveLayer is [Sender.SaveLayer].
func (x *Prefilling) SaveLayer(layer, tokensDone int, p *Pages) error {
	const op = "save layer"
	n, r := x.node, x.of
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := n.checkSave(op, r, layer, tokensDone, p); err != nil {
		return err
	}
	first, err := 0, error(nil)
	from, whole := r.saved[layer], tokensDone/int(n.layout.Tokens())
	if r.nowhere {
		r.tokens[layer], r.saved[layer] = tokensDone, max(from, whole)
		return nil
	}
	if p != nil {
		if first, err = p.layered(r, from); err != nil {
			return err
		}
	}
	if from < whole {
		if err := n.save(op, r, layer, tokensDone, p, first); err != nil {
			return err
		}
		r.saved[layer] = whole
	}
	if r.tokens[layer] = tokensDone; p != nil {
		r.last, r.first = p, first
	}
	return nil
}

// save hands the new whole chunks of a layer over.
func (n *Node) save(op string, r *prefill, layer, tokensDone int, p *Pages, first int) error {
	from, whole := r.saved[layer], tokensDone/int(n.layout.Tokens())
	if has := first + p.Len()/n.layers; p == nil || from < first || whole > has {
		given := "nil"
		if p != nil {
			given = fmt.Sprintf("chunks %d to %d", first, has-1)
		}
		return wrong(op, "p", given, fmt.Sprintf("chunks %d to %d of layer %d", from, whole-1, layer),
			fmt.Sprintf("%d pages for each chunk that became whole, one for each layer", n.layers))
	}
	var bodies []effects.CommandBody
	for _, run := range cut(whole-from, n.batch) {
		at, end := from+run[0], from+run[1]
		body := &layerwise.Save{Request: r.id, Run: r.run, Layer: uint32(layer), Tokens: uint32(tokensDone),
			First: uint32(at), Keys: r.keys[at:end], Pages: make([]effects.Page, 0, end-at)}
		for i := at; i < end; i++ {
			page := p.pages[(i-first)*n.layers+layer]
			page.Length = uint32(n.pageBytes)
			body.Pages = append(body.Pages, page)
		}
		bodies = append(bodies, body)
	}
	if most := int64(n.prefills.savesMax); n.prefills.saves.Load()+int64(len(bodies)) > most {
		return &Error{Op: op, Code: effects.TooMany, Count: int(most), Stage: effects.StageCommand,
			Field: "layerwise.saves", Theirs: strconv.FormatInt(n.prefills.saves.Load(), 10) + " whose pages are not back",
			Ours:   "at most " + strconv.FormatInt(most, 10),
			Remedy: "call again when some are, or raise layerwise.saves; the peer or the link is slower than the engine"}
	}
	l, err := p.lend(op, func() (*lot, error) { return n.prefills.submit(n, op, bodies) })
	if err != nil {
		return err
	}
	r.tickets, r.heard = append(r.tickets, l.tickets...), time.Now()
	return nil
}

// PreemptPrefill says that a request has lost what was computed of it, and will be computed again from Skip on: its
// SaveLayers begin anew, and so do handles. What is whole at the peer stays and does not go again; all else does. What
// is in flight is stopped, and its pages come back as Pages.AwaitReturn says.
func (s Sender) PreemptPrefill(request string) error {
	r, err := s.node.prefillOf("preempt prefill", request)
	if err != nil {
		return err
	}
	return (&Prefilling{s.node, r}).Preempt()
}

// Preempt is [Sender.PreemptPrefill].
func (x *Prefilling) Preempt() error {
	const op = "preempt prefill"
	n, r := x.node, x.of
	r.mu.Lock()
	t, err := func() (*Ticket, error) { // So that no SaveLayer waits for the outcome.
		defer r.mu.Unlock()
		if err := r.usable(op); err != nil {
			return nil, err
		}
		t, err := n.submit(op, work, &layerwise.Preempt{Request: r.id, Run: r.run})
		if err == nil {
			r.again()
		}
		return t, err
	}()
	if err != nil {
		return err
	}
	if out := <-t.Done(); out.Code != effects.OK {
		return (&Error{Op: op, Code: out.Code}).because(out.Why)
	}
	return nil
}

// FinishPrefill says that every layer was saved of all tokens, sends what they are beyond whole chunks, all layers of
// it at once, and returns when the request has ended: the peer has every chunk whole, or the error says why not. Then
// the proxy is told, once. The request is over with that, whatever the outcome, but for an error that is Invalid: then
// nothing has happened.
//
// The result counts chunks: Skipped are those of a request that goes nowhere. Its Returned is of the last tokens'
// pages; Pages.Release waits for all.
func (s Sender) FinishPrefill(ctx context.Context, request string) (PutResult, error) {
	r, err := s.node.prefillOf("finish prefill", request)
	if err != nil {
		return PutResult{}, err
	}
	return (&Prefilling{s.node, r}).Finish(ctx)
}

// Finish is [Sender.FinishPrefill].
func (x *Prefilling) Finish(ctx context.Context) (PutResult, error) {
	const op = "finish prefill"
	n, r := x.node, x.of
	if r.nowhere {
		return n.finishNowhere(op, r)
	}
	begun, total, err := n.finish(ctx, op, r)
	if err != nil {
		return PutResult{}, err
	}
	out := n.awaitAll(ctx, begun, abortOf)[0]
	if out.Code == effects.Invalid { // It was not begun with.
		r.mu.Lock()
		r.finishing = false
		r.mu.Unlock()
	} else {
		n.prefills.remove(r)
	}
	res := PutResult{Sent: out.Sent, Skipped: out.Skipped, lot: begun}
	if out.Code != effects.OK {
		code, cause := endOf(ctx, out.Code)
		return res, (&Error{Op: op, Code: code, Count: total - out.Sent, Cause: cause}).because(out.Why)
	}
	return res, nil
}

// finish hands a Finish over, and says of how many chunks.
func (n *Node) finish(ctx context.Context, op string, r *prefill) (begun *lot, total int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.finishing {
		return nil, 0, r.usable(op)
	}
	r.look()
	tokens, size := slices.Max(r.tokens), int(n.layout.Tokens())
	whole, rest := max(r.base, tokens/size), tokens%size
	if tokens/size < r.base {
		rest = 0 // All of it was there before.
	}
	body := &layerwise.Finish{Request: r.id, Run: r.run, Tokens: uint32(tokens),
		Patience: patienceOf(ctx, 0, n.cfg.PutTimeout)}
	if r.failed != nil { // It has no need of more, and ends as it failed.
		rest, body.Tokens = 0, uint32(tokens/size*size)
	} else if layer := slices.IndexFunc(r.tokens, func(t int) bool { return t != tokens }); layer >= 0 {
		return nil, 0, wrong(op, "layer "+strconv.Itoa(layer), strconv.Itoa(r.tokens[layer])+" tokens saved",
			strconv.Itoa(tokens)+", as of others", "save every layer of all tokens first, or drop the prefill")
	}
	total = whole - r.base
	if rest == 0 {
		begun, err = n.prefills.submit(n, op, []effects.CommandBody{body})
	} else if begun, err = n.finishTail(op, r, body, whole, rest); err == nil {
		total++
	}
	if err == nil {
		r.finishing = true
	}
	return begun, total, err
}

// finishTail hands a Finish over with what is less than a chunk.
func (n *Node) finishTail(op string, r *prefill, body *layerwise.Finish, chunk, rest int) (*lot, error) {
	p := r.last
	if p == nil || chunk < r.first || (chunk-r.first+1)*n.layers > p.Len() {
		return nil, wrong(op, "Pages", "none for chunk "+strconv.Itoa(chunk), strconv.Itoa(n.layers)+" of its "+
			strconv.Itoa(rest)+" tokens, one for each layer", "give the last SaveLayer a handle that has them")
	}
	body.Key = r.keys[chunk]
	for layer := range n.layers {
		page := p.pages[(chunk-r.first)*n.layers+layer]
		page.Length = uint32(rest) * uint32(n.layout.TokenBytes())
		body.Pages = append(body.Pages, page)
	}
	return p.lend(op, func() (*lot, error) { return n.prefills.submit(n, op, []effects.CommandBody{body}) })
}

// finishNowhere ends a request of which nothing goes.
func (n *Node) finishNowhere(op string, r *prefill) (PutResult, error) {
	r.mu.Lock()
	tokens, size := slices.Max(r.tokens), int(n.layout.Tokens())
	r.mu.Unlock()
	return PutResult{Skipped: max(0, (tokens+size-1)/size-r.base)}, n.drop(op, r)
}

// DropPrefill ends a request of which nothing more is to go. The proxy is not told, and the peer forgets what was not
// whole there. Its pages come back as Pages.AwaitReturn says.
func (s Sender) DropPrefill(request string) error {
	r, err := s.node.prefillOf("drop prefill", request)
	if err != nil {
		return err
	}
	return (&Prefilling{s.node, r}).Drop()
}

// Drop is [Sender.DropPrefill].
func (x *Prefilling) Drop() error { return x.node.drop("drop prefill", x.of) }

func (n *Node) drop(op string, r *prefill) error {
	r.mu.Lock()
	t, err := func() (*Ticket, error) {
		defer r.mu.Unlock()
		if r.finishing {
			return nil, r.usable(op)
		}
		t, err := n.submit(op, ending, &layerwise.Drop{Request: r.id, Run: r.run})
		r.finishing = err == nil
		return t, err
	}()
	if err != nil {
		return err
	}
	n.prefills.remove(r)
	if out := <-t.Done(); out.Code != effects.OK && out.Code != effects.NotFound { // It was forgotten.
		return (&Error{Op: op, Code: out.Code}).because(out.Why)
	}
	return nil
}

// AwaitReturn waits until nothing reads the pages of this handle any more that was put or saved of it so far: then the
// engine may write them again. The context bounds that wait.
func (p *Pages) AwaitReturn(ctx context.Context) error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	borrowed := slices.Clone(p.borrowed)
	p.mu.Unlock()
	for _, l := range borrowed {
		if l.isReturned() {
			continue
		}
		select {
		case <-l.Returned():
		case <-p.node.tickets.fallen:
			return &Error{Op: "await return", Code: effects.Failed}
		case <-ctx.Done():
			return &Error{Op: "await return", Code: waitedOut(ctx), Count: len(p.pages), Cause: ctx.Err(),
				Remedy: "something still reads the pages; wait again, or release them"}
		}
	}
	return nil
}

// Layers is how many pages a chunk has: one for each layer with use_layerwise, else one.
func (n *Node) Layers() int { return max(1, n.layers) }

// A prefill is what is known here of a request that goes by layers. What the machine knows of it may be less by what
// waits in the mailbox.
type prefill struct {
	id      []byte
	run     effects.Ticket // by which the machine has it: its name may be another's when it was forgotten
	keys    [][]byte
	base    int // the first chunk that may go
	nowhere bool

	over atomic.Bool // it takes nothing more, and its handles are free for another

	mu        sync.Mutex // never held while anything is waited for
	epoch     int
	saved     []int // by layer: the chunk behind the last that was handed over
	tokens    []int // by layer: of which it was said to be computed
	last      *Pages
	first     int       // the first chunk of last
	tickets   []*Ticket // whose outcomes nobody has looked at
	failed    *Error
	finishing bool
	heard     time.Time // when the machine was last told of it
}

// look takes the outcomes that are there.
func (r *prefill) look() {
	for len(r.tickets) > 0 {
		select {
		case out := <-r.tickets[0].Done():
			if r.tickets = r.tickets[1:]; out.Code != effects.OK && r.failed == nil {
				r.failed = (&Error{Code: out.Code}).because(out.Why)
			}
		default:
			return
		}
	}
}

// usable says why a request takes nothing more.
func (r *prefill) usable(op string) error {
	if r.finishing {
		return &Error{Op: op, Code: effects.Ended, Stage: effects.StageCommand, Field: "request",
			Theirs: strconv.Quote(string(r.id)), Ours: "one that is neither finished nor dropped", Remedy: "begin it again"}
	}
	if r.look(); r.failed != nil {
		e := *r.failed
		e.Op = op
		return &e
	}
	return nil
}

// again begins another epoch.
func (r *prefill) again() {
	r.epoch++
	for i := range r.saved {
		r.saved[i], r.tokens[i] = r.base, 0
	}
	r.last, r.heard = nil, time.Now()
}

// layered says which chunk of a request is the first of a handle; if it has none of it yet, from.
func (p *Pages) layered(r *prefill, from int) (first int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.released {
		return 0, wrong("save layer", "p", "released", "a handle that is not", "reserve new ones")
	}
	if of := p.layers.of; of != nil && of != r && !of.over.Load() {
		return 0, wrong("save layer", "p", "of request "+strconv.Quote(short(string(of.id))), "pages of this one alone",
			"reserve them for each request by itself")
	}
	if p.layers.of != r || p.layers.epoch != r.epoch {
		p.layers.of, p.layers.epoch, p.layers.first = r, r.epoch, from
	}
	return p.layers.first, nil
}

// prefills are the requests of a node that go by layers.
type prefills struct {
	runsMax, savesMax, chunksMax int
	linkBytes                    uint64
	batchTime                    time.Duration

	saves atomic.Int64 // commands whose pages are not back
	mu    sync.Mutex
	open  map[string]*prefill
}

func newPrefills(cfg *config.Config) *prefills {
	m, l := &cfg.Machine, &cfg.Layerwise
	return &prefills{runsMax: int(m.RunsMax), savesMax: int(m.SavesMax), chunksMax: int(m.ChunksMax),
		linkBytes: l.LinkBytes, batchTime: l.BatchTime, open: map[string]*prefill{}}
}

// submit gives the machine commands that have pages, and counts them until those are back.
func (ps *prefills) submit(n *Node, op string, bodies []effects.CommandBody) (*lot, error) {
	count := int64(len(bodies))
	ps.saves.Add(count)
	l, err := n.submitAll(op, work, bodies, func(tickets []*Ticket) {
		tickets[0].lot.over = func() { ps.saves.Add(-count) }
	})
	if err != nil {
		ps.saves.Add(-count)
	}
	return l, err
}

// add takes a request that the machine has. What it has forgotten by then makes room: that of which it heard last.
func (ps *prefills) add(request string, r *prefill) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if former := ps.open[request]; former != nil {
		former.over.Store(true) // The machine has forgotten it.
	}
	ps.open[request] = r
	for len(ps.open) > ps.runsMax {
		oldest := ""
		var at time.Time
		for id, other := range ps.open {
			other.mu.Lock()
			if oldest == "" || other.heard.Before(at) {
				oldest, at = id, other.heard
			}
			other.mu.Unlock()
		}
		ps.open[oldest].over.Store(true)
		delete(ps.open, oldest)
	}
}

func (ps *prefills) remove(r *prefill) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	r.over.Store(true)
	if ps.open[string(r.id)] == r {
		delete(ps.open, string(r.id))
	}
}

// prefillOf is a request that has begun.
func (n *Node) prefillOf(op, request string) (*prefill, error) {
	if err := n.wantLayers(op); err != nil {
		return nil, err
	}
	n.prefills.mu.Lock()
	defer n.prefills.mu.Unlock()
	if r := n.prefills.open[request]; r != nil {
		return r, nil
	}
	e := wrong(op, "request", strconv.Quote(short(request)), "one that has begun, and was neither finished nor dropped",
		"begin it with BeginPrefill")
	e.Code = effects.NotFound
	return nil, e
}

// wantLayers refuses calls of a node that pushes no layers.
func (n *Node) wantLayers(op string) error {
	if err := n.wantSide(op, config.Sender); err != nil || n.layers > 0 {
		return err
	}
	e := wrong(op, "use_layerwise", "false", "true", "set use_layerwise: true, here and at the receivers")
	e.Code = effects.Unsupported
	return e
}

// checkPrefill says what is wrong with a prefill that is to begin.
func (n *Node) checkPrefill(p *Prefill) error {
	const op = "begin prefill"
	if err := n.wantLayers(op); err != nil {
		return err
	}
	if err := plainHost(op, "Peer.Host", &p.Peer.Host); err != nil {
		return err
	}
	tokens := int(n.layout.Tokens())
	switch {
	case p.Peer.Host == "" && p.Peer != (Peer{}):
		return wrong(op, "Peer.Host", "empty", "a host", "name where the receiver listens, or leave Peer out for nowhere")
	case p.Peer.Host != "" && p.Peer.InitPort == 0:
		return wrong(op, "Peer.InitPort", "0", "a port", "give the receiver's pd_peer_init_port")
	case p.Peer.Host != "" && p.Peer.AllocPort == 0:
		return wrong(op, "Peer.AllocPort", "0", "a port", "give the receiver's pd_peer_alloc_port")
	case p.Request == "":
		return wrong(op, "Request", "empty", "the proxy's id of the request", "name the request that is computed")
	case len(p.Request) > int(n.cfg.RequestIDMax):
		return tooLarge(op, "Request", strconv.Itoa(len(p.Request))+" bytes", "at most "+strconv.Itoa(int(n.cfg.RequestIDMax)),
			"shorten it, or raise limits.request_bytes")
	case len(p.Keys) == 0:
		return wrong(op, "Keys", "empty", "at least one", "name each chunk of the request by its key")
	case p.Skip < 0 || p.Skip > len(p.Keys)*tokens:
		return wrong(op, "Skip", strconv.Itoa(p.Skip), upTo(0, len(p.Keys)*tokens), "count the tokens that are not to go")
	case len(p.Keys)-p.Skip/tokens > n.prefills.chunksMax:
		return tooLarge(op, "Keys", strconv.Itoa(len(p.Keys)), "at most "+strconv.Itoa(n.prefills.chunksMax)+
			" behind Skip", "raise layerwise.chunks")
	case p.LayerTime < 0:
		return wrong(op, "LayerTime", fmt.Sprint(p.LayerTime), "0 or more", "leave it 0 if it is not known")
	}
	return n.checkKeysUpTo(op, p.Keys, n.keyBytes-len("@1023"))
}

// checkSave says what is wrong with a layer that is to be saved.
func (n *Node) checkSave(op string, r *prefill, layer, tokensDone int, p *Pages) error {
	if err := r.usable(op); err != nil {
		return err
	}
	most := len(r.keys) * int(n.layout.Tokens())
	switch {
	case layer < 0 || layer >= n.layers:
		return wrong(op, "layer", strconv.Itoa(layer), upTo(0, n.layers-1), "layers count from 0")
	case tokensDone < r.tokens[layer] || tokensDone > most:
		return wrong(op, "tokensDone", strconv.Itoa(tokensDone), upTo(r.tokens[layer], most),
			"give all tokens of which the layer is computed; it has no more than Keys, and fewer only after PreemptPrefill")
	case p == nil:
		return nil
	case p.node != n || !p.own:
		return wrong(op, "p", "of another node, or of a Get", "a handle of this node", "reserve them from this Sender")
	case p.Len()%n.layers != 0:
		return wrong(op, "p.Len()", strconv.Itoa(p.Len()), "a multiple of "+strconv.Itoa(n.layers),
			"reserve a page for each layer of each chunk")
	}
	return nil
}
