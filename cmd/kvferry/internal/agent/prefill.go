package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/runtime"
)

// layerKey returns the name of the content of one layer of a chunk, which is the layer's key.
func layerKey(key string, layer int) string {
	return string(protocol.AppendLayerKey(nil, []byte(key), uint32(layer)))
}

// runPrefill computes a request as an engine does. Each layer is pushed as soon as it is computed.
func (s *server) runPrefill(ctx context.Context, req *Request) Response {
	problem := ""
	switch {
	case req.Peer == nil:
		problem = "peer is missing; give host, init_port and alloc_port"
	case len(req.Keys) == 0:
		problem = "keys is empty; name at least one chunk"
	case req.Prefill == nil:
		problem = "prefill is missing; give step_tokens"
	case req.Prefill.StepTokens < 1:
		problem = fmt.Sprintf("prefill.step_tokens is %d; give at least 1", req.Prefill.StepTokens)
	}
	if problem != "" {
		return Response{Code: effects.Invalid.String(), Error: "prefill: " + problem}
	}
	sender := s.node.Sender()
	if err := sender.BeginPrefill(runtime.Prefill{
		Peer:    runtime.Peer{Host: req.Peer.Host, InitPort: req.Peer.InitPort, AllocPort: req.Peer.AllocPort},
		Request: req.Request, Keys: req.Keys, Skip: req.Prefill.Skip,
	}); err != nil {
		return responseOf(err)
	}
	e := prefiller{server: s, req: req, tokens: len(req.Keys) * int(s.node.Layout().TokenCount())}
	if req.LastTokens > 0 {
		e.tokens += req.LastTokens - int(s.node.Layout().TokenCount())
	}
	e.first = req.Prefill.Skip / int(s.node.Layout().TokenCount())
	pages, err := sender.Reserve(ctx, (len(req.Keys)-e.first)*s.node.Layers())
	if err != nil {
		return responseOf(errors.Join(err, sender.DropPrefill(req.Request)))
	}
	e.pages = pages
	err = e.computeSteps(ctx)
	begin := time.Now()
	res, finished := sender.FinishPrefill(ctx, req.Request)
	e.resp.MicrosTransfer, e.resp.Sent = time.Since(begin).Microseconds(), res.Sent
	if finished != nil { // The end of the request reports more than a failed save does.
		err = finished
	}
	if err == nil {
		e.resp.Bytes = int64(e.tokens-e.first*int(s.node.Layout().TokenCount())) *
			int64(s.node.Layout().TokenBytes()) * int64(s.node.Layers())
	}
	// The pages are released whatever the outcome of the request, as soon as no transfer reads them any more.
	s.working.Go(func() {
		if err := pages.Release(context.WithoutCancel(ctx)); err != nil {
			s.recordError(err)
		}
	})
	resp := responseOf(err)
	e.resp.Code, e.resp.Error = resp.Code, resp.Error
	return e.resp
}

// A prefiller plays the engine for one layerwise request.
type prefiller struct {
	server *server
	req    *Request
	pages  *runtime.Pages
	tokens int // number of tokens of the request
	first  int // index of the first chunk to push; page 0 belongs to this chunk
	layers int // number of layers computed so far, over all steps
	resp   Response
}

// computeSteps computes all steps of the request. If the request is preempted, computeSteps begins again with the first
// step.
func (e *prefiller) computeSteps(ctx context.Context) error {
	for from := e.req.Prefill.Skip; from < e.tokens; {
		until := min(from+e.req.Prefill.StepTokens, e.tokens)
		preempted, err := e.computeStep(from, until)
		if err != nil {
			return err
		}
		if from = until; preempted {
			if err := e.preemptRequest(ctx); err != nil {
				return err
			}
			from = e.req.Prefill.Skip
		}
	}
	return nil
}

func (e *prefiller) preemptRequest(ctx context.Context) error {
	e.resp.Preempted++
	if err := e.server.node.Sender().PreemptPrefill(e.req.Request); err != nil {
		return err
	}
	return e.pages.AwaitReturn(ctx) // The pages must not be written again while a transfer reads them.
}

// computeStep computes all layers for the tokens from..until and saves each layer when it is computed. It reports
// whether the request was preempted during the step.
func (e *prefiller) computeStep(from, until int) (preempted bool, err error) {
	chunk, layers := int(e.server.node.Layout().TokenCount()), e.server.node.Layers()
	for layer := range layers {
		begin := time.Now()
		done := begin.Add(time.Duration(int64(until-from) * e.req.Prefill.TokenNanos))
		for i := from / chunk; i*chunk < until; i++ { // If the step ends in the middle of a chunk, the whole chunk is filled.
			n := min(chunk, e.tokens-i*chunk) * int(e.server.node.Layout().TokenBytes())
			content := layerKey(e.req.Keys[i], layer)
			err := e.server.engine.FillPage(e.pages, (i-e.first)*layers+layer, n, func(b []byte) { FillContent(b, content) })
			if err != nil {
				return false, err
			}
		}
		for time.Now().Before(done) { // Spin, as a core that computes would.
		}
		saving := time.Now()
		e.resp.MicrosSpun += saving.Sub(begin).Microseconds()
		err := e.server.node.Sender().SaveLayer(e.req.Request, layer, until, e.pages)
		e.resp.MicrosSaving += time.Since(saving).Microseconds()
		if err != nil {
			return false, err
		}
		e.resp.Saved++
		if e.layers++; e.layers == e.req.Prefill.PreemptAfter {
			return true, nil
		}
	}
	return false, nil
}
