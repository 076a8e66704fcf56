package attach

import (
	"context"
	"errors"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/runtime"
)

var errNotUsed = errors.New("the engine could not use what it was shown")

// ops maps each operation that needs only the arguments of the call to the function that carries out the operation.
// The functions make the calls of package runtime with the same names.
//
//kvferry:table
var ops = map[protocol.CallOp]func(context.Context, *args) outcome{
	protocol.CallReserve:        reserve,
	protocol.CallRelease:        release,
	protocol.CallAwaitReturn:    awaitReturn,
	protocol.CallPut:            put,
	protocol.CallRecall:         recall,
	protocol.CallBeginPrefill:   beginPrefill,
	protocol.CallSaveLayer:      saveLayer,
	protocol.CallPreemptPrefill: preemptPrefill,
	protocol.CallFinishPrefill:  finishPrefill,
	protocol.CallDropPrefill:    dropPrefill,
	protocol.CallGet:            get,
	protocol.CallContains:       contains,
	protocol.CallAbandon:        abandon,
	protocol.CallStore:          store,
	protocol.CallShare:          share,
	protocol.CallWithdraw:       withdraw,
	protocol.CallLookup:         lookup,
	protocol.CallSharedGet:      sharedGet,
	protocol.CallKeep:           keep,
	protocol.CallRegister:       register,
	protocol.CallExpect:         expect,
	protocol.CallNotNeeded:      notNeeded,
	protocol.CallFinished:       finished,
	protocol.CallAborted:        aborted,
	protocol.CallEnd:            end,
}

// swift contains the quick operations: operations that do not wait, and operations that wait only after the node has
// accepted the call. The quick operations of an engine are carried out in the order of the engine's calls.
//
//kvferry:table
var swift = map[protocol.CallOp]bool{
	protocol.CallStats: true, protocol.CallTakeBack: true, protocol.CallBeginPrefill: true, protocol.CallSaveLayer: true,
	protocol.CallPreemptPrefill: true, protocol.CallDropPrefill: true, protocol.CallContains: true,
	protocol.CallAbandon: true, protocol.CallStore: true, protocol.CallShare: true, protocol.CallRegister: true,
	protocol.CallExpect: true, protocol.CallFinished: true, protocol.CallAborted: true,
}

// within returns ctx, limited to the call's deadline budget if the call has such a budget.
func (a *args) within(ctx context.Context) (context.Context, context.CancelFunc) {
	if a.patience == 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, a.patience)
}

func (a *args) peer() runtime.Peer {
	return runtime.Peer{Host: a.host, InitPort: a.ports[0], AllocPort: a.ports[1]}
}

// brought returns the outcome of a call that returns pages. An empty set of pages creates no handle.
func brought(p *runtime.Pages, err error) outcome {
	out := outcome{err: err}
	if p.Len() == 0 {
		return out
	}
	out.held = &held{pages: p}
	for i := range p.Len() {
		index, bytes, err := p.At(i)
		if err != nil {
			out.err = errors.Join(out.err, err)
			break
		}
		out.answer.Pages = append(out.answer.Pages, uint64(index))
		out.answer.Lengths = append(out.answer.Lengths, uint64(bytes))
	}
	return out
}

// reserve reserves pages, on the sharing side of the node if the node shares chunks, and on the sender side otherwise.
func reserve(ctx context.Context, a *args) outcome {
	ctx, cancel := a.within(ctx)
	defer cancel()
	if slices.Contains(a.node.Sides(), "sharing") {
		return brought(a.node.Sharing().Reserve(ctx, a.count))
	}
	return brought(a.node.Sender().Reserve(ctx, a.count))
}

// release waits until no operation uses the pages. The session machine begins no new call on pages that are being
// released, so the wait ends without a deadline.
func release(_ context.Context, a *args) outcome {
	err := a.target.pages.Release(context.Background())
	return outcome{err: err, stands: err != nil && !over(err)}
}

func awaitReturn(ctx context.Context, a *args) outcome {
	ctx, cancel := a.within(ctx)
	defer cancel()
	return outcome{err: a.target.pages.AwaitReturn(ctx)}
}

func put(ctx context.Context, a *args) outcome {
	res, err := a.node.Sender().Put(ctx, runtime.Put{
		Peer: a.peer(), Request: a.request, Keys: a.keys, Pages: a.target.pages, First: a.first,
		LastChunkTokens: a.tokens, Last: a.last, Patience: a.patience,
	})
	return putEnded(res, err)
}

// putEnded returns the outcome of a put, or of the end of a prefill. The outcome keeps the result, so that the offer
// can be withdrawn later.
func putEnded(res runtime.PutResult, err error) outcome {
	return outcome{err: err, put: &res, returned: res.Returned(),
		answer: protocol.EngineAnswer{Sent: uint32(res.Sent), Skipped: uint32(res.Skipped)}}
}

func recall(ctx context.Context, a *args) outcome {
	res, err := a.node.Sender().Recall(ctx, runtime.Recall{
		Peer: runtime.RecallPeer{Host: a.host, InitPort: a.ports[0], AllocPort: a.ports[1], QueryPort: a.ports[2]},
		Keys: a.keys, Request: a.request, Pages: a.target.pages, First: a.first, Patience: a.patience,
	})
	out := outcome{err: err, returned: res.Returned(), answer: protocol.EngineAnswer{Hits: uint32(res.Hits)}}
	for i, length := range res.Lengths {
		if index, _, err := a.target.pages.At(a.first + i); err == nil {
			out.answer.Pages = append(out.answer.Pages, uint64(index))
			out.answer.Lengths = append(out.answer.Lengths, uint64(length))
		}
	}
	return out
}

func beginPrefill(_ context.Context, a *args) outcome {
	x, err := a.node.Sender().StartPrefill(runtime.Prefill{Peer: a.peer(), Request: a.request, Keys: a.keys, Skip: a.skip,
		LayerTime: a.layerTime})
	if err != nil {
		return outcome{err: err}
	}
	return outcome{held: &held{prefill: x}}
}

func saveLayer(_ context.Context, a *args) outcome {
	var pages *runtime.Pages
	if a.target != nil {
		pages = a.target.pages
	}
	return outcome{err: a.prefill.prefill.SaveLayer(a.layer, a.tokens, pages)}
}

func preemptPrefill(_ context.Context, a *args) outcome {
	return outcome{err: a.prefill.prefill.Preempt()}
}

func finishPrefill(ctx context.Context, a *args) outcome {
	ctx, cancel := a.within(ctx)
	defer cancel()
	res, err := a.prefill.prefill.Finish(ctx)
	out := putEnded(res, err)
	out.stands = standing(err)
	return out
}

func dropPrefill(_ context.Context, a *args) outcome {
	err := a.prefill.prefill.Drop()
	return outcome{err: err, stands: standing(err)}
}

// standing reports whether a prefill continues although the engine has requested the end, because the node refused the
// request without any effect.
func standing(err error) bool {
	code := runtime.CodeOf(err)
	return code == effects.TooMany || code == effects.Invalid
}

func get(ctx context.Context, a *args) outcome {
	return brought(a.node.Receiver().Get(ctx, runtime.Get{Request: a.request, Keys: a.keys, Layered: a.layered,
		Patience: a.patience}))
}

func contains(ctx context.Context, a *args) outcome {
	hits, err := a.node.Receiver().Contains(ctx, a.keys)
	return outcome{err: err, answer: protocol.EngineAnswer{Hits: uint32(hits)}}
}

func abandon(_ context.Context, a *args) outcome {
	return outcome{err: a.node.Receiver().AbandonFor(a.request, a.reason)}
}

func end(ctx context.Context, a *args) outcome {
	return outcome{err: a.node.Sender().End(ctx, runtime.End{
		Request: a.request, Peer: a.peer(), Code: effects.CodeFromWire(a.code), Reason: a.reason, Patience: a.patience,
	})}
}

func store(ctx context.Context, a *args) outcome {
	return outcome{err: a.node.Sharing().Store(ctx, a.keys, a.target.pages, a.first)}
}

// share shares chunks. The outcome has a handle if at least one chunk is shared.
func share(ctx context.Context, a *args) outcome {
	x, err := a.node.Sharing().Share(ctx, a.keys, a.target.pages, a.first)
	if x != nil && err != nil && x.Hits() == 0 { // Nothing is shared, so the engine gets no handle.
		err = errors.Join(err, x.Withdraw(ctx))
		x = nil
	}
	if x == nil {
		return outcome{err: err}
	}
	return outcome{err: err, held: &held{shared: x}, answer: protocol.EngineAnswer{Hits: uint32(x.Hits())}}
}

func withdraw(ctx context.Context, a *args) outcome {
	ctx, cancel := a.within(ctx)
	defer cancel()
	err := a.target.shared.Withdraw(ctx)
	return outcome{err: err, stands: err != nil && !over(err)}
}

// lookup returns the number of local chunks in the answer's field Sent, and the number of remote chunks in Skipped.
func lookup(ctx context.Context, a *args) outcome {
	local, remote, err := a.node.Sharing().Lookup(ctx, a.keys)
	return outcome{err: err, answer: protocol.EngineAnswer{Sent: uint32(local), Skipped: uint32(remote)}}
}

func (a *args) sharedGet() runtime.SharedGet {
	return runtime.SharedGet{Request: a.request, Keys: a.keys, Patience: a.patience,
		From: runtime.SharingPeer{Host: a.host, InitPort: a.ports[0]}}
}

func sharedGet(ctx context.Context, a *args) outcome {
	return brought(a.node.Sharing().Get(ctx, a.sharedGet()))
}

func keep(ctx context.Context, a *args) outcome {
	kept, err := a.node.Sharing().Keep(ctx, a.sharedGet())
	return outcome{err: err, answer: protocol.EngineAnswer{Hits: uint32(kept)}}
}

// register registers blocks. After the node has accepted the registration, the outcome's later waits for the end of
// the registration.
func register(ctx context.Context, a *args) outcome {
	r, err := a.node.Consumer().Register(ctx, runtime.Registration{
		Request: a.request, Transfer: a.transfer, Engine: a.engine, Producers: a.producers, Ranks: a.ranks,
		Stages: a.stages, Blocks: a.blocks, Patience: a.patience,
	})
	if err != nil {
		return outcome{err: err}
	}
	return outcome{later: func() outcome {
		end := <-r.Done()
		return outcome{err: end.Err, returned: r.Returned(), answer: protocol.EngineAnswer{Hits: uint32(end.Pages)}}
	}}
}

func (a *args) expected() runtime.Expected {
	return runtime.Expected{Request: a.request, Transfer: a.transfer, Producers: a.producers, Patience: a.patience}
}

// expect waits, in the outcome's later, for the end of a transfer that the node expects.
func expect(ctx context.Context, a *args) outcome {
	end, err := a.node.Consumer().Expect(ctx, a.expected())
	if err != nil {
		return outcome{err: err}
	}
	return outcome{later: func() outcome { return outcome{err: <-end} }}
}

func notNeeded(ctx context.Context, a *args) outcome {
	return outcome{err: a.node.Consumer().NotNeeded(ctx, a.expected())}
}

// finished lends the blocks of a finished request. The outcome's later waits for the end of the lease. The answer's
// field Skipped is 1 if the blocks were not needed.
func finished(ctx context.Context, a *args) outcome {
	l, err := a.node.Producer().Finished(ctx, runtime.Finished{Request: a.request, Transfer: a.transfer,
		Blocks: a.blocks, Lease: a.patience})
	if err != nil {
		return outcome{err: err}
	}
	return outcome{later: func() outcome {
		end := <-l.Done()
		answer := protocol.EngineAnswer{Sent: uint32(end.Pages)}
		if end.NotNeeded {
			answer.Skipped = 1
		}
		return outcome{err: end.Err, returned: l.Returned(), answer: answer}
	}}
}

func aborted(_ context.Context, a *args) outcome {
	return outcome{err: a.node.Producer().Aborted(a.request, a.transfer)}
}
