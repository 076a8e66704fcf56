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

// layerOf names the content of one layer of a chunk: its key.
func layerOf(key string, layer int) string {
	return string(protocol.AppendLayerKey(nil, []byte(key), uint32(layer)))
}

// prefill computes a request as an engine does, and has each layer pushed when it is computed.
func (s *server) prefill(ctx context.Context, req *Request) Response {
	wrong := ""
	switch {
	case req.Peer == nil:
		wrong = "peer is missing; give host, init_port and alloc_port"
	case len(req.Keys) == 0:
		wrong = "keys is empty; name at least one chunk"
	case req.Prefill == nil:
		wrong = "prefill is missing; give step_tokens"
	case req.Prefill.StepTokens < 1:
		wrong = fmt.Sprintf("prefill.step_tokens is %d; give at least 1", req.Prefill.StepTokens)
	}
	if wrong != "" {
		return Response{Code: effects.Invalid.String(), Error: "prefill: " + wrong}
	}
	sender := s.node.Sender()
	if err := sender.BeginPrefill(runtime.Prefill{
		Peer:    runtime.Peer{Host: req.Peer.Host, InitPort: req.Peer.InitPort, AllocPort: req.Peer.AllocPort},
		Request: req.Request, Keys: req.Keys, Skip: req.Prefill.Skip,
	}); err != nil {
		return ended(err)
	}
	e := prefiller{s: s, req: req, tokens: len(req.Keys) * int(s.node.Layout().Tokens())}
	if req.LastTokens > 0 {
		e.tokens += req.LastTokens - int(s.node.Layout().Tokens())
	}
	e.first = req.Prefill.Skip / int(s.node.Layout().Tokens())
	pages, err := sender.Reserve(ctx, (len(req.Keys)-e.first)*s.node.Layers())
	if err != nil {
		return ended(errors.Join(err, sender.DropPrefill(req.Request)))
	}
	e.pages = pages
	err = e.compute(ctx)
	begin := time.Now()
	res, finished := sender.FinishPrefill(ctx, req.Request)
	e.resp.MicrosTransfer, e.resp.Sent = time.Since(begin).Microseconds(), res.Sent
	if finished != nil { // It says more than a save that failed.
		err = finished
	}
	if err == nil {
		e.resp.Bytes = int64(e.tokens-e.first*int(s.node.Layout().Tokens())) *
			int64(s.node.Layout().TokenBytes()) * int64(s.node.Layers())
	}
	// They go back whatever became of the request, when nobody reads them any more.
	s.working.Go(func() {
		if err := pages.Release(context.WithoutCancel(ctx)); err != nil {
			s.fails(err)
		}
	})
	resp := ended(err)
	e.resp.Code, e.resp.Error = resp.Code, resp.Error
	return e.resp
}

// A prefiller is an engine that computes one request.
type prefiller struct {
	s      *server
	req    *Request
	pages  *runtime.Pages
	tokens int // of the request
	first  int // the first chunk that is to go, and that pages are of
	layers int // computed so far
	resp   Response
}

// compute computes all steps; from the start once more if it is preempted.
func (e *prefiller) compute(ctx context.Context) error {
	for from := e.req.Prefill.Skip; from < e.tokens; {
		until := min(from+e.req.Prefill.StepTokens, e.tokens)
		again, err := e.step(from, until)
		if err != nil {
			return err
		}
		if from = until; again {
			if err := e.preempt(ctx); err != nil {
				return err
			}
			from = e.req.Prefill.Skip
		}
	}
	return nil
}

func (e *prefiller) preempt(ctx context.Context) error {
	e.resp.Preempted++
	if err := e.s.node.Sender().PreemptPrefill(e.req.Request); err != nil {
		return err
	}
	return e.pages.AwaitReturn(ctx) // Before they are written again.
}

// step computes the layers of one step, each of which goes when it is done. It says whether it is preempted in it.
func (e *prefiller) step(from, until int) (preempted bool, err error) {
	chunk, layers := int(e.s.node.Layout().Tokens()), e.s.node.Layers()
	for layer := range layers {
		begin := time.Now()
		done := begin.Add(time.Duration(int64(until-from) * e.req.Prefill.TokenNanos))
		for i := from / chunk; i*chunk < until; i++ { // What a step ends in the middle of is all made then.
			n := min(chunk, e.tokens-i*chunk) * int(e.s.node.Layout().TokenBytes())
			content := layerOf(e.req.Keys[i], layer)
			err := e.s.engine.Fill(e.pages, (i-e.first)*layers+layer, n, func(b []byte) { Fill(b, content) })
			if err != nil {
				return false, err
			}
		}
		for time.Now().Before(done) { // As a core that computes.
		}
		saving := time.Now()
		e.resp.MicrosSpun += saving.Sub(begin).Microseconds()
		err := e.s.node.Sender().SaveLayer(e.req.Request, layer, until, e.pages)
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
