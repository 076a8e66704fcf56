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
	askTimeout = 5 * time.Second // for one engine's answer to a question: the next one may answer
	askBytes   = 1 << 20
)

// question asks the decode engines, the first that answers in time, for what is the same at all of them. It takes the
// room of a request: else clients that only ask this could have all connections.
func (p *Proxy) question(w http.ResponseWriter, r *http.Request) {
	exit, ok := p.enter(w, r)
	if !ok {
		return
	}
	defer exit()
	defer working(r)()
	c := newCall(w, r)
	p.first(r.Context(), w, c, func(at int) (*http.Response, error) { return p.wholeAnswer(r.Context(), c, at) },
		func(error) bool { return true })
}

// work has a decode engine do what needs no KV cache, such as counting the tokens of a prompt.
func (p *Proxy) work(w http.ResponseWriter, r *http.Request) {
	body, done, ok := p.read(w, r)
	if !ok {
		return
	}
	defer done()
	req, err := parse(body, nil)
	if err != nil {
		p.refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), p.config.Timeout)
	defer cancel()
	c := newCall(w, r)
	p.first(ctx, w, c, func(at int) (*http.Response, error) {
		return p.ask(ctx, http.MethodPost, p.decodes.urls[at], c, req.forDecode(nil))
	}, isDial)
}

// first passes the answer of the first decode engine that gives one. After an error for which again holds the next one
// is asked.
func (p *Proxy) first(ctx context.Context, w http.ResponseWriter, c call, ask func(at int) (*http.Response, error),
	again func(error) bool,
) {
	tried := map[int]bool{}
	var err error
	for at := p.decodes.look(time.Now(), nil); at >= 0; at = p.decodes.look(time.Now(), tried) {
		var res *http.Response
		if res, err = ask(at); err == nil {
			if had, err := p.pass(w, c, res, at); err != nil && had == nothing {
				p.fail(ctx, w, err)
			} else if err != nil {
				p.breakOff(ctx, w, res, had, err)
			}
			return
		}
		if canceled(ctx) {
			panic(http.ErrAbortHandler)
		}
		if !again(err) {
			break
		}
		tried[at] = true
	}
	p.fail(ctx, w, err)
}

// wholeAnswer asks one decode engine, and reads all of its answer.
func (p *Proxy) wholeAnswer(ctx context.Context, c call, at int) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	res, err := p.ask(ctx, http.MethodGet, p.decodes.urls[at], c, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(res.Body, askBytes+1))
	if err == nil && len(answer) > askBytes {
		err = fmt.Errorf("its answer has more than %d bytes", askBytes)
	}
	res.Body = io.NopCloser(bytes.NewReader(answer))
	return res, err
}
