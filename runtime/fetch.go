package runtime

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
)

// A Scatter is the engine's device code for one fetch: it copies chunks to where the engine computes, and returns when
// it has read them. Chunk i is that of the fetch's key first+i: its valid bytes, in the pool, only to be read and only
// until the call returns. The calls of a fetch come in the order of its keys, one at a time, each on the
// goroutine that called Fetch; those of other fetches run beside them. An error fails the fetch. The context
// ends when the fetch has failed meanwhile, or the node closes: what the call still does is of no use then.
type Scatter func(ctx context.Context, first int, chunks [][]byte) error

// A DeviceScatter is a Scatter for pools in the memory of a device: it is told where chunks are instead. It returns
// when the device has read them.
type DeviceScatter func(ctx context.Context, first int, chunks []DevicePage) error

// A Place is where a page is for a process that has mapped Node.Mapping: its index there, and of how many bytes.
type Place struct{ Index, Bytes uint32 }

// A PlaceScatter is a Scatter whose chunks another process reads, which is told where they are. It returns when that
// process has read them.
type PlaceScatter func(ctx context.Context, first int, chunks []Place) error

// Fetch names chunks that an engine wants, in the order in which it wants them.
type Fetch struct {
	// Request is the proxy's id of the request. What came for it is consumed, as by a Get: the senders of offers have
	// their pages back when they were read. What is fetched of other requests' stays theirs, and without a Request
	// everything does.
	Request string
	Keys    []string
	// One of them, as the pool is memory of this process, of a device, or another process's as well.
	Scatter Scatter
	Device  DeviceScatter
	Places  PlaceScatter // of a node with a Mapping
	// Patience bounds the whole of it, waiting, reading and scattering, by at most the configured
	// pull.fetch_timeout; 0 is that.
	Patience time.Duration
}

// Fetch hands chunks to the engine's device code batch by batch: those that are here from where they lie, the others
// read from the senders that offered them (pd_delay_pull), while the batch before is scattered. It waits until all of
// the chunks are known and begins then. It returns how many chunks, from the first key on, Scatter has taken.
//
// An error means that the engine has to compute the request's remaining chunks; those that Scatter took are right.
// Nothing is tried again, and the other chunks of the fetch that were offered for its request are given up: their
// senders have the memory back. Only a fetch that never began, because what it waited for did not come, leaves all as
// it was.
//
// Of more chunks than limits.keys_per_batch one part is fetched after the other, within the one Patience: each begins
// when its chunks are known. Chunks of later parts that are offered only after an earlier one failed are kept; Abandon
// refuses them.
//
// No call of Scatter runs when Fetch returns, or will: whatever Scatter stores into is the caller's alone again. The
// end of ctx aborts the fetch, and Fetch still waits for a call in progress, which sees its own context end.
func (r Receiver) Fetch(ctx context.Context, f Fetch) (taken int, err error) {
	if err := r.check("fetch", f.Keys); err != nil {
		return 0, err
	}
	if err := r.node.checkScatter(f.Scatter, f.Device, f.Places); err != nil {
		return 0, err
	}
	patience := time.Duration(r.node.cfg.FetchTimeout)
	if f.Patience > 0 {
		patience = min(f.Patience, patience)
	}
	until := time.Now().Add(patience)
	for _, run := range cut(len(f.Keys), r.node.batch) {
		part := f
		part.Keys = f.Keys[run[0]:run[1]]
		part.Patience = max(time.Until(until), 1)
		n, begun, err := r.fetchPart(ctx, part, run[0])
		if taken += n; err != nil {
			if begun || run[0] > 0 {
				r.giveUp(f.Request, f.Keys[run[0]:])
			}
			return taken, err
		}
	}
	return taken, nil
}

// checkScatter says what is wrong with how chunks are to be handed over.
func (n *Node) checkScatter(here Scatter, device DeviceScatter, places PlaceScatter) error {
	const op = "fetch"
	given := 0
	for _, is := range []bool{here != nil, device != nil, places != nil} {
		if is {
			given++
		}
	}
	switch {
	case given == 0:
		return wrong(op, "Scatter", "nil, and so is Device", "one of them", "say where the chunks go")
	case given > 1:
		return wrong(op, "Scatter, Device and Places", strconv.Itoa(given)+" of them", "one",
			"say in one way where the chunks go")
	case here != nil && !n.inProcess:
		return wrong(op, "Scatter", "there", "Device", "pages may be in the memory of a device; give Device instead")
	case device != nil && !n.addressed:
		return wrong(op, "Device", "there", "Scatter", "the pool is memory of this process; give Scatter instead")
	case places != nil:
		return n.openToEngines(op)
	}
	return nil
}

// giveUp tells the senders of what is left of a fetch that nobody comes for it. A node that closes tells them itself.
func (r Receiver) giveUp(request string, keys []string) {
	if request == "" {
		return
	}
	for _, run := range cut(len(keys), r.node.batch) {
		body := &engine.GiveUp{Request: []byte(request), Keys: keyBytes(keys[run[0]:run[1]])}
		t, err := r.node.submit("give up", ending, body)
		if err != nil {
			return
		}
		<-t.Done() // Answered by the step that takes it.
	}
}

// fetchPart fetches chunks of which the first is the fetch's chunk number base.
func (r Receiver) fetchPart(ctx context.Context, f Fetch, base int) (taken int, begun bool, err error) {
	n := r.node
	scatter := n.world.scatterOf(f)
	e := newScatterer(ctx, n.world.scatters, func(ctx context.Context, first int, pages []effects.Page) error {
		return scatter(ctx, base+first, pages)
	})
	defer e.over()
	body := &engine.Fetch{Request: []byte(f.Request), Keys: keyBytes(f.Keys),
		Patience: patienceOf(ctx, f.Patience, n.cfg.FetchTimeout)}
	t, err := n.tickets.beginFetch("fetch", e)
	if err != nil {
		return 0, false, err
	}
	n.loop.mailbox.Post(&effects.Command{Ticket: t.id, Body: body})
	stop := context.AfterFunc(ctx, func() {
		if !takesBack(ctx) {
			return
		}
		// Without room for it the fetch ends by its patience. What comes of it is the fetch's outcome.
		_, _ = n.submit("abort", ending, &engine.Abort{Target: t.id})
	})
	defer stop()
	out := e.serve(t)
	if out.Code != effects.OK {
		code, cause := endOf(ctx, out.Code)
		if inVain := code == effects.NotFound || code == effects.Lapsed; inVain {
			cause = outOfTime(ctx)
		} else if code == effects.Faulted {
			cause = e.err
		}
		failed := (&Error{Op: "fetch", Code: code, Count: len(f.Keys), Cause: cause}).because(out.Why)
		if failed.Remedy == "" && (code == effects.PeerLost || code == effects.Withdrawn || code == effects.Expired) {
			failed.Remedy = "compute the rest" // To try again helps puts: what was offered is gone.
		}
		return e.taken, out.Begun, failed
	}
	return e.taken, true, nil
}

// A scatterer is the part of a fetch that the loop and the fetch's own goroutine share, and what that goroutine knows.
type scatterer struct {
	scatters *scatters
	run      scatterPages
	batches  chan batch      // holds one: a machine scatters one batch of a command at a time
	ctx      context.Context // of the calls
	over     context.CancelFunc

	taken int   // chunks that run took
	err   error // the last that run gave
}

// A batch is one Scatter of the machine.
type batch struct {
	corr  effects.Corr
	first int
	pages []effects.Page
}

// scatterPages is a Scatter or a DeviceScatter, of pages.
type scatterPages func(ctx context.Context, first int, pages []effects.Page) error

func (w *world) scatterOf(f Fetch) scatterPages {
	if f.Scatter != nil {
		return func(ctx context.Context, first int, pages []effects.Page) error {
			chunks := make([][]byte, len(pages))
			for i, page := range pages {
				chunks[i] = w.memory.host(page)
			}
			return f.Scatter(ctx, first, chunks)
		}
	}
	if f.Places != nil {
		return func(ctx context.Context, first int, pages []effects.Page) error {
			chunks := make([]Place, len(pages))
			for i, page := range pages {
				chunks[i] = Place{page.Index, page.Length}
			}
			return f.Places(ctx, first, chunks)
		}
	}
	return func(ctx context.Context, first int, pages []effects.Page) error {
		chunks := make([]DevicePage, len(pages))
		for i, page := range pages {
			chunks[i] = DevicePage{Address: w.memory.address(page), Bytes: page.Length}
		}
		return f.Device(ctx, first, chunks)
	}
}

// newScatterer gives the calls what ctx carries, but not its end: that aborts the fetch, whose outcome then ends them.
// So the outcome is the abort's, and not what a call makes of it.
func newScatterer(ctx context.Context, s *scatters, run scatterPages) *scatterer {
	e := &scatterer{scatters: s, run: run, batches: make(chan batch, 1)}
	calls, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(s.ctx, cancel)
	e.ctx, e.over = calls, func() { stop(); cancel() }
	return e
}

// hand gives the fetch's goroutine one batch. It never blocks.
func (e *scatterer) hand(b batch) {
	select {
	case e.batches <- b:
	default:
		panic("BUG: chunks of a fetch are scattered beside others of it")
	}
}

// serve scatters batches until the ticket has its outcome and nothing is scattered any more.
func (e *scatterer) serve(t *Ticket) Outcome {
	for {
		select {
		case b := <-e.batches:
			e.scatter(b)
		case out := <-t.Done():
			// What was handed over just before the outcome is not begun. Nothing is handed over after it.
			select {
			case b := <-e.batches:
				e.scatters.refuse(b.corr)
			default:
			}
			<-t.Returned()
			return out
		}
	}
}

// scatter makes one call. The machine is told of its end also if it panics, or ends its goroutine.
func (e *scatterer) scatter(b batch) {
	if e.ctx.Err() != nil || !e.scatters.begin() {
		e.scatters.refuse(b.corr)
		return
	}
	code := effects.Faulted
	defer func() { e.scatters.end(b.corr, code) }()
	err := e.run(e.ctx, b.first, b.pages)
	switch {
	case err == nil:
		code = effects.OK
		e.taken = b.first + len(b.pages)
	case e.ctx.Err() != nil && errors.Is(err, e.ctx.Err()):
		code = effects.Closed
	default:
		e.err = err
	}
}
