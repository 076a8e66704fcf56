package proxy

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"time"
)

const (
	queryTimeout  = 5 * time.Second // of an engine; then the next engine is asked
	queryBytesMax = 1 << 20
)

// relayQuery asks the decode engines in sequence for information that is the same at every engine, such as GET
// /v1/models. The request occupies a slot of the requests in flight, because otherwise clients could occupy all
// connections with these requests.
func (p *Proxy) relayQuery(w http.ResponseWriter, r *http.Request) {
	exit, ok := p.reserveSlot(w, r)
	if !ok {
		return
	}
	defer exit()
	defer markWorking(r)()
	c := p.newCall(w, r)
	p.firstAnswer(r.Context(), w, c, func(at int) (*http.Response, error) { return p.wholeAnswer(r.Context(), c, at) },
		func(error) bool { return true })
}

// relayWork lets a decode engine do work that needs no KV cache, such as counting the tokens of a prompt.
func (p *Proxy) relayWork(w http.ResponseWriter, r *http.Request) {
	body, done, ok := p.readBody(w, r)
	if !ok {
		return
	}
	defer done()
	req, err := parseRequest(body, nil)
	if err != nil {
		p.refuseRequest(w, http.StatusBadRequest, err.Error())
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), p.config.Timeout)
	defer cancel()
	c := p.newCall(w, r)
	p.firstAnswer(ctx, w, c, func(at int) (*http.Response, error) {
		return p.sendToEngine(ctx, http.MethodPost, p.decodes.urls[at], c, req.decodeBody(nil))
	}, isDialError)
}

// firstAnswer passes on the answer of the first decode engine that answers. After an error for which retry returns
// true, the next engine is tried.
func (p *Proxy) firstAnswer(ctx context.Context, w http.ResponseWriter, c call,
	send func(at int) (*http.Response, error), retry func(error) bool,
) {
	tried := map[int]bool{}
	var err error
	for at := p.decodes.peekEngine(time.Now(), nil); at >= 0; at = p.decodes.peekEngine(time.Now(), tried) {
		var res *http.Response
		if res, err = send(at); err == nil {
			if received, err := p.passAnswer(w, c, res, at); err != nil && received == receivedNothing {
				p.failRequest(ctx, w, err)
			} else if err != nil {
				p.breakOff(ctx, w, res, received, err)
			}
			return
		}
		if isCanceled(ctx) {
			panic(http.ErrAbortHandler)
		}
		if !retry(err) {
			break
		}
		tried[at] = true
	}
	p.failRequest(ctx, w, err)
}

// wholeAnswer sends a request to a decode engine and reads the complete answer.
func (p *Proxy) wholeAnswer(ctx context.Context, c call, at int) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	res, err := p.sendToEngine(ctx, http.MethodGet, p.decodes.urls[at], c, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(res.Body, queryBytesMax+1))
	if err == nil && len(answer) > queryBytesMax {
		err = fmt.Errorf("the engine's answer has more than %d bytes", queryBytesMax)
	}
	res.Body = io.NopCloser(bytes.NewReader(answer))
	return res, err
}
