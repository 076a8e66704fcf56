package attach

import (
	"context"
	"errors"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/runtime"
)

var errChunksNotRead = errors.New("the engine could not use the chunks that it was shown")

// callHandlers maps each operation that needs only the arguments of the call to the function that carries out the
// operation. The functions make the calls of package runtime with the same names.
//
//kvferry:table
var callHandlers = map[protocol.CallOp]func(context.Context, *args) outcome{
	protocol.CallReserve:        handleReserve,
	protocol.CallRelease:        handleRelease,
	protocol.CallAwaitReturn:    handleAwaitReturn,
	protocol.CallPut:            handlePut,
	protocol.CallRecall:         handleRecall,
	protocol.CallBeginPrefill:   handleBeginPrefill,
	protocol.CallSaveLayer:      handleSaveLayer,
	protocol.CallPreemptPrefill: handlePreemptPrefill,
	protocol.CallFinishPrefill:  handleFinishPrefill,
	protocol.CallDropPrefill:    handleDropPrefill,
	protocol.CallGet:            handleGet,
	protocol.CallContains:       handleContains,
	protocol.CallAbandon:        handleAbandon,
	protocol.CallStore:          handleStore,
	protocol.CallShare:          handleShare,
	protocol.CallWithdraw:       handleWithdraw,
	protocol.CallLookup:         handleLookup,
	protocol.CallSharedGet:      handleSharedGet,
	protocol.CallKeep:           handleLease,
	protocol.CallRegister:       handleRegister,
	protocol.CallExpect:         handleExpect,
	protocol.CallNotNeeded:      handleDecline,
	protocol.CallFinished:       handleLendBlocks,
	protocol.CallAborted:        handleAbortRequest,
	protocol.CallEnd:            handleEnd,
}

// quickOps contains the quick operations: operations that do not wait, and operations that wait only after the node has
// accepted the call. The quick operations of an engine are carried out in the order of the engine's calls.
//
//kvferry:table
var quickOps = map[protocol.CallOp]bool{
	protocol.CallStats: true, protocol.CallTakeBack: true, protocol.CallBeginPrefill: true, protocol.CallSaveLayer: true,
	protocol.CallPreemptPrefill: true, protocol.CallDropPrefill: true, protocol.CallContains: true,
	protocol.CallAbandon: true, protocol.CallStore: true, protocol.CallShare: true, protocol.CallRegister: true,
	protocol.CallExpect: true, protocol.CallFinished: true, protocol.CallAborted: true,
}

// withTimeout returns ctx, limited to the call's deadline budget if the call has such a budget.
func (a *args) withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	if a.timeout == 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, a.timeout)
}

func (a *args) peerAddr() runtime.Peer {
	return runtime.Peer{Host: a.host, InitPort: a.ports[0], AllocPort: a.ports[1]}
}

// pagesOutcome returns the outcome of a call that returns pages. An empty set of pages creates no handle.
func pagesOutcome(p *runtime.Pages, err error) outcome {
	out := outcome{err: err}
	if p.Len() == 0 {
		return out
	}
	out.handle = &handle{pages: p}
	for i := range p.Len() {
		index, bytes, err := p.MappedPage(i)
		if err != nil {
			out.err = errors.Join(out.err, err)
			break
		}
		out.answer.Pages = append(out.answer.Pages, uint64(index))
		out.answer.Lengths = append(out.answer.Lengths, uint64(bytes))
	}
	return out
}

// handleReserve reserves pages for the tenant of the first key, on the sharing side of the node if the node shares chunks,
// and on the sender side otherwise.
func handleReserve(ctx context.Context, a *args) outcome {
	ctx, cancel := a.withTimeout(ctx)
	defer cancel()
	tenant := effects.Tenant(0)
	if len(a.keys) > 0 {
		tenant = effects.Tenant(protocol.TenantOf([]byte(a.keys[0])))
	}
	if slices.Contains(a.node.Sides(), "sharing") {
		return pagesOutcome(a.node.Sharing().ReserveFor(ctx, a.count, tenant))
	}
	return pagesOutcome(a.node.Sender().ReserveFor(ctx, a.count, tenant))
}

// handleRelease waits until no operation uses the pages. The session machine begins no new call on pages that are being
// released, so the wait ends without a deadline.
func handleRelease(_ context.Context, a *args) outcome {
	err := a.target.pages.Release(context.Background())
	return outcome{err: err, stillHeld: err != nil && !hasEnded(err)}
}

func handleAwaitReturn(ctx context.Context, a *args) outcome {
	ctx, cancel := a.withTimeout(ctx)
	defer cancel()
	return outcome{err: a.target.pages.AwaitReturn(ctx)}
}

func handlePut(ctx context.Context, a *args) outcome {
	res, err := a.node.Sender().Put(ctx, runtime.Put{
		Peer: a.peerAddr(), Request: a.request, Keys: a.keys, Pages: a.target.pages, First: a.first,
		LastChunkTokens: a.tokens, Last: a.last, Timeout: a.timeout, Trace: a.trace,
	})
	return putOutcome(res, err)
}

// putOutcome returns the outcome of a put, or of the end of a prefill. The outcome keeps the result, so that the offer
// can be withdrawn later.
func putOutcome(res runtime.PutResult, err error) outcome {
	return outcome{err: err, put: &res, returned: res.Returned(),
		answer: protocol.EngineAnswer{Sent: uint32(res.Sent), Skipped: uint32(res.Skipped)}}
}

func handleRecall(ctx context.Context, a *args) outcome {
	res, err := a.node.Sender().Recall(ctx, runtime.Recall{
		Peer: runtime.RecallPeer{Host: a.host, InitPort: a.ports[0], AllocPort: a.ports[1], QueryPort: a.ports[2]},
		Keys: a.keys, Request: a.request, Pages: a.target.pages, First: a.first, Timeout: a.timeout, Trace: a.trace,
	})
	out := outcome{err: err, returned: res.Returned(), answer: protocol.EngineAnswer{Hits: uint32(res.Hits)}}
	for i, length := range res.Lengths {
		if index, _, err := a.target.pages.MappedPage(a.first + i); err == nil {
			out.answer.Pages = append(out.answer.Pages, uint64(index))
			out.answer.Lengths = append(out.answer.Lengths, uint64(length))
		}
	}
	return out
}

func handleBeginPrefill(_ context.Context, a *args) outcome {
	x, err := a.node.Sender().OpenPrefill(runtime.Prefill{Peer: a.peerAddr(), Request: a.request, Keys: a.keys, Skip: a.skip,
		LayerTime: a.layerTime, Trace: a.trace})
	if err != nil {
		return outcome{err: err}
	}
	return outcome{handle: &handle{prefill: x}}
}

func handleSaveLayer(_ context.Context, a *args) outcome {
	var pages *runtime.Pages
	if a.target != nil {
		pages = a.target.pages
	}
	return outcome{err: a.prefill.prefill.SaveLayer(a.layer, a.tokens, pages)}
}

func handlePreemptPrefill(_ context.Context, a *args) outcome {
	return outcome{err: a.prefill.prefill.Preempt()}
}

func handleFinishPrefill(ctx context.Context, a *args) outcome {
	ctx, cancel := a.withTimeout(ctx)
	defer cancel()
	res, err := a.prefill.prefill.Finish(ctx)
	out := putOutcome(res, err)
	out.stillHeld = prefillContinues(err)
	return out
}

func handleDropPrefill(_ context.Context, a *args) outcome {
	err := a.prefill.prefill.Drop()
	return outcome{err: err, stillHeld: prefillContinues(err)}
}

// prefillContinues reports whether a prefill continues although the engine has requested the end, because the node
// refused the request without any effect.
func prefillContinues(err error) bool {
	code := runtime.CodeOf(err)
	return code == effects.TooMany || code == effects.Invalid
}

func handleGet(ctx context.Context, a *args) outcome {
	return pagesOutcome(a.node.Receiver().Get(ctx, runtime.Get{Request: a.request, Keys: a.keys, Layered: a.layered,
		Domain: a.domain, Timeout: a.timeout, Trace: a.trace}))
}

func handleContains(ctx context.Context, a *args) outcome {
	hits, err := a.node.Receiver().ContainsOf(ctx, a.domain, a.keys)
	return outcome{err: err, answer: protocol.EngineAnswer{Hits: uint32(hits)}}
}

func handleAbandon(_ context.Context, a *args) outcome {
	return outcome{err: a.node.Receiver().AbandonWithReason(a.request, a.reason, a.tenant)}
}

func handleEnd(ctx context.Context, a *args) outcome {
	return outcome{err: a.node.Sender().EndRequest(ctx, runtime.RequestEnd{
		Request: a.request, Peer: a.peerAddr(), Code: effects.CodeFromWire(a.code), Reason: a.reason, Tenant: a.tenant,
		Timeout: a.timeout,
	})}
}

func handleStore(ctx context.Context, a *args) outcome {
	return outcome{err: a.node.Sharing().Store(ctx, a.keys, a.target.pages, a.first)}
}

// handleShare shares chunks. The outcome has a handle if at least one chunk is shared.
func handleShare(ctx context.Context, a *args) outcome {
	x, err := a.node.Sharing().Share(ctx, a.keys, a.target.pages, a.first)
	if x != nil && err != nil && x.Hits() == 0 { // Nothing is shared, so the engine gets no handle.
		err = errors.Join(err, x.Withdraw(ctx))
		x = nil
	}
	if x == nil {
		return outcome{err: err}
	}
	return outcome{err: err, handle: &handle{shared: x}, answer: protocol.EngineAnswer{Hits: uint32(x.Hits())}}
}

func handleWithdraw(ctx context.Context, a *args) outcome {
	ctx, cancel := a.withTimeout(ctx)
	defer cancel()
	err := a.target.shared.Withdraw(ctx)
	return outcome{err: err, stillHeld: err != nil && !hasEnded(err)}
}

// handleLookup returns the number of local chunks in the answer's field Sent, and the number of remote chunks in
// Skipped.
func handleLookup(ctx context.Context, a *args) outcome {
	local, remote, err := a.node.Sharing().Lookup(ctx, a.keys)
	return outcome{err: err, answer: protocol.EngineAnswer{Sent: uint32(local), Skipped: uint32(remote)}}
}

func (a *args) sharedGetArgs() runtime.SharedGet {
	return runtime.SharedGet{Request: a.request, Keys: a.keys, Timeout: a.timeout, Trace: a.trace,
		From: runtime.SharingPeer{Host: a.host, InitPort: a.ports[0]}}
}

func handleSharedGet(ctx context.Context, a *args) outcome {
	return pagesOutcome(a.node.Sharing().Get(ctx, a.sharedGetArgs()))
}

func handleLease(ctx context.Context, a *args) outcome {
	leased, err := a.node.Sharing().Lease(ctx, a.sharedGetArgs())
	return outcome{err: err, answer: protocol.EngineAnswer{Hits: uint32(leased)}}
}

// handleRegister registers blocks. After the node has accepted the registration, the outcome's await waits for the end
// of the registration.
func handleRegister(ctx context.Context, a *args) outcome {
	r, err := a.node.Consumer().Register(ctx, runtime.Registration{
		Request: a.request, Transfer: a.transfer, Engine: a.engine, Producers: a.producers, Ranks: a.ranks,
		Stages: a.stages, Blocks: a.blocks, Timeout: a.timeout, Trace: a.trace,
	})
	if err != nil {
		return outcome{err: err}
	}
	return outcome{await: func() outcome {
		end := <-r.Done()
		return outcome{err: end.Err, returned: r.Returned(), answer: protocol.EngineAnswer{Hits: uint32(end.Pages)}}
	}}
}

func (a *args) requestNotice() runtime.RequestNotice {
	return runtime.RequestNotice{Request: a.request, Transfer: a.transfer, Producers: a.producers, Timeout: a.timeout}
}

// handleExpect waits, in the outcome's later, for the end of a transfer that the node expects.
func handleExpect(ctx context.Context, a *args) outcome {
	end, err := a.node.Consumer().Expect(ctx, a.requestNotice())
	if err != nil {
		return outcome{err: err}
	}
	return outcome{await: func() outcome { return outcome{err: <-end} }}
}

func handleDecline(ctx context.Context, a *args) outcome {
	return outcome{err: a.node.Consumer().Decline(ctx, a.requestNotice())}
}

// handleLendBlocks lends the blocks of a finished request. The outcome's await waits for the end of the lease. The
// answer's field Skipped is 1 if the blocks were not needed.
func handleLendBlocks(ctx context.Context, a *args) outcome {
	l, err := a.node.Producer().LendBlocks(ctx, runtime.FinishedRequest{Request: a.request, Transfer: a.transfer,
		Blocks: a.blocks, Lease: a.timeout, Trace: a.trace})
	if err != nil {
		return outcome{err: err}
	}
	return outcome{await: func() outcome {
		end := <-l.Done()
		answer := protocol.EngineAnswer{Sent: uint32(end.Pages)}
		if end.NotNeeded {
			answer.Skipped = 1
		}
		return outcome{err: end.Err, returned: l.Returned(), answer: answer}
	}}
}

func handleAbortRequest(_ context.Context, a *args) outcome {
	return outcome{err: a.node.Producer().AbortRequest(a.request, a.transfer)}
}
