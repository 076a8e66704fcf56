package runtime

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
)

// A Scatter is the engine's device code for a fetch. The function copies chunks to the memory in which the engine
// computes, and returns after reading the chunks. Chunk i belongs to key first+i of the fetch; the slice holds the
// valid bytes of a page of the pool, is read-only, and is valid until the function returns. The calls for a fetch are
// made in the order of the keys, one at a time, on the goroutine that called Fetch; calls for other fetches run
// concurrently. An error fails the fetch. The context ends when the fetch has failed in the meantime or the node
// closes; the result of the call is not used then.
type Scatter func(ctx context.Context, first int, chunks [][]byte) error

// A DeviceScatter is a Scatter for pools in the memory of a device. The function receives the addresses of chunks
// instead of the bytes, and returns when the device has read the chunks.
type DeviceScatter func(ctx context.Context, first int, chunks []DevicePage) error

// A MappedPage locates a page for a process that has mapped Node.Mapping: the page's index in the mapping, and the
// number of valid bytes.
type MappedPage struct{ Index, Bytes uint32 }

// A MappedScatter is a Scatter for chunks that another process reads. The function receives the locations of the
// chunks, and returns when that process has read the chunks.
type MappedScatter func(ctx context.Context, first int, chunks []MappedPage) error

// Fetch names the chunks that an engine needs, in the order of use.
type Fetch struct {
	// Request is the proxy's id of the request. Chunks that were sent or offered for this request are consumed, as by
	// a Get: the senders of offers get their pages back when the chunks have been read. Chunks that belong to other
	// requests are read but not consumed. Without a Request no chunk is consumed.
	Request string
	Keys    []string
	// Exactly one of the following functions is set: the first if the pool is memory of this process, the second if
	// the pool is memory of a device, the third if another process maps the pool.
	Scatter       Scatter
	ScatterDevice DeviceScatter
	ScatterMapped MappedScatter // for a node with a Mapping
	Domain        string        // the trust domain whose chunks the Fetch accepts, as Get.Domain
	// Timeout limits the whole fetch: waiting, reading and scattering. The value is capped by the configured
	// pull.fetch_timeout, which is also the default for 0.
	Timeout time.Duration
	Trace   effects.TraceContext // the caller's span (WithTracer)
}

// Fetch hands chunks to the engine's device code, batch by batch. Chunks that are in the pool are handed over in
// place; the remaining chunks are read from the senders that offered the chunks (pd_delay_pull) while the previous
// batch is scattered. Fetch begins when the locations of all chunks are known, and waits for that. The result is the
// number of chunks, from the first key on, that Scatter has taken.
//
// An error means that the engine has to compute the remaining chunks of the request; the chunks that Scatter took are
// correct. Fetch does not retry. Further chunks of the fetch that were offered for the request are abandoned, and
// their senders get the memory back. Only a fetch that never began, because expected chunks did not arrive, leaves
// everything unchanged.
//
// A fetch of more chunks than limits.keys_per_batch is done in parts, in sequence, within the one Fetch.Timeout; each
// part begins when the chunks are known. Chunks of later parts that are offered only after an earlier part has failed
// are kept; Abandon refuses such chunks.
//
// Invariant (M8): when Fetch returns, no call of Scatter is running and none will be started, so the memory into
// which Scatter stores belongs to the caller alone. If ctx is cancelled, the fetch is aborted; Fetch still waits for
// a call in progress, and the context of that call ends.
func (r Receiver) Fetch(ctx context.Context, f Fetch) (taken int, err error) {
	if err := r.checkCall("fetch", f.Keys); err != nil {
		return 0, err
	}
	if err := r.node.checkScatter(f.Scatter, f.ScatterDevice, f.ScatterMapped); err != nil {
		return 0, err
	}
	realm, err := r.node.parseDomain("fetch", f.Domain)
	if err != nil {
		return 0, err
	}
	timeout := time.Duration(r.node.cfg.FetchTimeout)
	if f.Timeout > 0 {
		timeout = min(f.Timeout, timeout)
	}
	until := time.Now().Add(timeout)
	call := r.node.startCall("kvferry.fetch", f.Trace)
	defer func() { call.end(f.Request, taken, err) }()
	for _, run := range splitRuns(len(f.Keys), r.node.keysPerBatch) {
		part := f
		part.Keys = f.Keys[run[0]:run[1]]
		part.Timeout = max(time.Until(until), 1)
		n, started, err := r.fetchPart(ctx, part, realm, run[0])
		if taken += n; err != nil {
			if started || run[0] > 0 {
				r.abandonKeys(f.Request, realm, f.Keys[run[0]:])
			}
			return taken, err
		}
	}
	return taken, nil
}

// checkScatter returns an error unless exactly one function for the chunks is given, and the node's pool supports the
// function.
func (n *Node) checkScatter(scatter Scatter, device DeviceScatter, places MappedScatter) error {
	const op = "fetch"
	count := 0
	for _, given := range []bool{scatter != nil, device != nil, places != nil} {
		if given {
			count++
		}
	}
	switch {
	case count == 0:
		return argumentError(op, "Scatter", "nil, as are ScatterDevice and ScatterMapped",
			"exactly one of them", "set the function that takes the chunks")
	case count > 1:
		return argumentError(op, "Scatter, ScatterDevice and ScatterMapped", strconv.Itoa(count)+" of them", "one",
			"set only one of them")
	case scatter != nil && !n.inProcess:
		return argumentError(op, "Scatter", "set", "ScatterDevice", "pages may be in the memory of a device; set ScatterDevice "+
			"instead")
	case device != nil && !n.hasAddresses:
		return argumentError(op, "ScatterDevice", "set", "Scatter", "the pool is memory of this process; set Scatter instead")
	case places != nil:
		return n.requireAttachable(op)
	}
	return nil
}

// abandonKeys notifies the senders of the remaining chunks of a fetch that the chunks will not be read. A node that
// closes notifies the senders itself.
func (r Receiver) abandonKeys(request string, realm effects.Realm, keys []string) {
	if request == "" {
		return
	}
	for _, run := range splitRuns(len(keys), r.node.keysPerBatch) {
		body := &engine.GiveUp{Request: []byte(request), Keys: keysToBytes(keys[run[0]:run[1]]), Realm: realm}
		t, err := r.node.submitCommand("give up", classEnding, body)
		if err != nil {
			return
		}
		<-t.Done() // The machine answers in the step that takes the command.
	}
}

// fetchPart fetches a part of a fetch; base is the index of the part's first chunk in the whole fetch. The results are
// the number of chunks taken and whether the part began.
func (r Receiver) fetchPart(ctx context.Context, f Fetch, realm effects.Realm, base int) (taken int, started bool,
	err error) {
	n := r.node
	scatter := n.driver.newPageScatter(f)
	e := newScatterer(ctx, n.driver.scatterCalls, func(ctx context.Context, first int, pages []effects.Page) error {
		return scatter(ctx, base+first, pages)
	})
	defer e.cancel()
	body := &engine.Fetch{Request: []byte(f.Request), Keys: keysToBytes(f.Keys), Realm: realm,
		Timeout: commandTimeout(ctx, f.Timeout, n.cfg.FetchTimeout)}
	t, err := n.tickets.beginFetch("fetch", e)
	if err != nil {
		return 0, false, err
	}
	n.loop.mailbox.Post(&effects.Command{Ticket: t.id, Body: body})
	stop := context.AfterFunc(ctx, func() {
		if !shouldAbort(ctx) {
			return
		}
		// If the command table has no room for the abort, the fetch ends by timeout. The outcome of the fetch shows
		// what the abort did.
		_, _ = n.submitCommand("abort", classEnding, &engine.Abort{Target: t.id})
	})
	defer stop()
	out := e.scatterBatches(t)
	if out.Code != effects.OK {
		code, cause := callerCode(ctx, out.Code)
		if missing := code == effects.NotFound || code == effects.Lapsed; missing {
			cause = deadlineCause(ctx)
		} else if code == effects.Faulted {
			cause = e.err
		}
		failed := (&Error{Op: "fetch", Code: code, Count: len(f.Keys), Cause: cause}).withDetails(out.Details)
		if failed.Remedy == "" && (code == effects.PeerLost || code == effects.Withdrawn || code == effects.Expired) {
			// The general remedy, to try again, helps puts only: what was offered for a fetch is gone.
			failed.Remedy = "compute the rest"
		}
		return e.taken, out.Started, failed
	}
	return e.taken, true, nil
}

// A scatterer connects the loop, which emits batches, with the goroutine of a fetch, which scatters batches.
type scatterer struct {
	calls *scatterCalls
	run   pageScatter
	// batches holds at most one batch, because the machine scatters the batches of a command one at a time.
	batches chan pageBatch
	ctx     context.Context // the context of the calls
	cancel  context.CancelFunc

	taken int   // the number of chunks that run has taken
	err   error // the last error that run returned
}

// A pageBatch is the content of a Scatter effect of the machine.
type pageBatch struct {
	corr  effects.Corr
	first int
	pages []effects.Page
}

// pageScatter is the common form of Scatter, DeviceScatter and MappedScatter: the function receives pages.
type pageScatter func(ctx context.Context, first int, pages []effects.Page) error

func (w *rankDriver) newPageScatter(f Fetch) pageScatter {
	if f.Scatter != nil {
		return func(ctx context.Context, first int, pages []effects.Page) error {
			chunks := make([][]byte, len(pages))
			for i, page := range pages {
				chunks[i] = w.memory.hostBytes(page)
			}
			return f.Scatter(ctx, first, chunks)
		}
	}
	if f.ScatterMapped != nil {
		return func(ctx context.Context, first int, pages []effects.Page) error {
			chunks := make([]MappedPage, len(pages))
			for i, page := range pages {
				chunks[i] = MappedPage{page.Index, page.Length}
			}
			return f.ScatterMapped(ctx, first, chunks)
		}
	}
	return func(ctx context.Context, first int, pages []effects.Page) error {
		chunks := make([]DevicePage, len(pages))
		for i, page := range pages {
			chunks[i] = DevicePage{Address: w.memory.deviceAddress(page), Bytes: page.Length}
		}
		return f.ScatterDevice(ctx, first, chunks)
	}
}

// newScatterer gives the calls the values of ctx but not the cancellation. The end of ctx aborts the fetch, and the
// outcome of the fetch then ends the calls. The outcome is therefore that of the abort, and does not depend on how a
// call reacts.
func newScatterer(ctx context.Context, s *scatterCalls, run pageScatter) *scatterer {
	e := &scatterer{calls: s, run: run, batches: make(chan pageBatch, 1)}
	calls, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(s.ctx, cancel)
	e.ctx, e.cancel = calls, func() { stop(); cancel() }
	return e
}

// sendBatch gives the fetch's goroutine a batch, and never blocks.
func (e *scatterer) sendBatch(b pageBatch) {
	select {
	case e.batches <- b:
	default:
		panic("BUG: two batches of one fetch are scattered at the same time")
	}
}

// scatterBatches scatters batches until the ticket has an outcome and the memory has been returned, and returns the
// outcome.
func (e *scatterer) scatterBatches(t *Ticket) Outcome {
	for {
		select {
		case b := <-e.batches:
			e.scatterBatch(b)
		case out := <-t.Done():
			// A batch that was handed over just before the outcome is not begun. No batch is handed over after the
			// outcome.
			select {
			case b := <-e.batches:
				e.calls.refuseCall(b.corr)
			default:
			}
			<-t.Returned()
			return out
		}
	}
}

// scatterBatch makes a call. The machine is notified of the end of the call even if the call panics or ends the
// goroutine.
func (e *scatterer) scatterBatch(b pageBatch) {
	if e.ctx.Err() != nil || !e.calls.beginCall() {
		e.calls.refuseCall(b.corr)
		return
	}
	code := effects.Faulted
	defer func() { e.calls.endCall(b.corr, code) }()
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
