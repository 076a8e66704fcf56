package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// decode has a decode engine answer, and passes its answer on. The first that is asked is the one whose agents got the
// cache; the others compute.
func (p *Proxy) decode(
	ctx context.Context, w http.ResponseWriter, c call, r request, chosen int, params json.RawMessage,
) {
	tried := map[int]bool{}
	for {
		res, err := p.answer(ctx, c, r, chosen, params)
		if err == nil {
			p.pass(w, res)
			return
		}
		if ctx.Err() == nil && isDial(err) {
			// It was not asked, so another one may be. A request that ends an engine must not end them all.
			p.decodes.failed(chosen, time.Now())
			p.log.Warn("a decode engine cannot be reached", p.config.Decodes[chosen].URL.String(), "err", err)
			tried[chosen] = true
			if chosen = p.decodes.take(time.Now(), true, tried); chosen >= 0 {
				params = nil
				continue
			}
		}
		p.fail(ctx, w, err)
		return
	}
}

// answer asks one decode engine. If it answers an error with the cache, it is asked once more, without.
func (p *Proxy) answer(
	ctx context.Context, c call, r request, at int, params json.RawMessage,
) (*http.Response, error) {
	for {
		body, err := r.forDecode(params)
		if err != nil {
			return nil, err
		}
		res, err := p.ask(ctx, http.MethodPost, p.config.Decodes[at].URL, c, body)
		if err != nil || params == nil || res.StatusCode < http.StatusInternalServerError {
			return res, err
		}
		_ = res.Body.Close()
		p.log.Warn("a decode engine fails with a cache: it is asked to compute", p.config.Decodes[at].URL.String(),
			"status", res.StatusCode)
		params = nil
	}
}

func isDial(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// fail answers a request that no engine did.
func (p *Proxy) fail(ctx context.Context, w http.ResponseWriter, err error) {
	if errors.Is(ctx.Err(), context.Canceled) {
		panic(http.ErrAbortHandler) // The client is gone, or the proxy stops.
	}
	p.stats.failed.Add(1)
	if ctx.Err() != nil {
		p.refuse(w, http.StatusGatewayTimeout, "the decode engine did not answer in time")
		return
	}
	p.log.Warn("a decode engine does not answer", "", "err", err)
	p.refuse(w, http.StatusBadGateway, "no decode engine answers")
}

// hop are headers of one connection, which are not passed on. Connection names others.
var hop = map[string]bool{"Connection": true, "Keep-Alive": true, "Transfer-Encoding": true, "Trailer": true,
	"Upgrade": true, "Proxy-Connection": true, "Te": true}

// patience begins the time in which a client is to take the next piece of its answer.
func (p *Proxy) patience(w http.ResponseWriter) *http.ResponseController {
	rc := http.NewResponseController(w)
	_ = rc.SetWriteDeadline(time.Now().Add(p.config.WriteTimeout))
	return rc
}

// pass copies an engine's answer to the client, each piece as soon as it is there.
func (p *Proxy) pass(w http.ResponseWriter, res *http.Response) {
	defer func() { _ = res.Body.Close() }()
	for _, names := range res.Header["Connection"] {
		for name := range strings.SplitSeq(names, ",") {
			res.Header.Del(strings.TrimSpace(name))
		}
	}
	for name, values := range res.Header {
		if !hop[name] {
			w.Header()[name] = values
		}
	}
	rc := p.patience(w)
	w.WriteHeader(res.StatusCode)
	piece := make([]byte, 16<<10)
	for {
		n, err := res.Body.Read(piece)
		if n > 0 {
			p.patience(w)
			if _, writeErr := w.Write(piece[:n]); writeErr != nil {
				panic(http.ErrAbortHandler)
			}
			if flushErr := rc.Flush(); flushErr != nil {
				panic(http.ErrAbortHandler)
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			p.patience(w) // For its end: the last piece may be long ago.
			return
		case err != nil:
			if asked := res.Request; !errors.Is(asked.Context().Err(), context.Canceled) {
				p.stats.failed.Add(1)
				p.log.Warn("an engine's answer breaks off", asked.URL.Host, "request", asked.Header.Get(idHeader), "err", err)
			}
			panic(http.ErrAbortHandler) // The client sees that it is not whole.
		}
	}
}

// models says what the first decode engine that answers serves.
func (p *Proxy) models(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), p.config.ReadTimeout)
	defer cancel()
	c := call{path: r.URL.Path, headers: passed(r.Header, identify(r))}
	tried := map[int]bool{}
	var err error
	for at := p.decodes.look(time.Now(), nil); at >= 0 && ctx.Err() == nil; at = p.decodes.look(time.Now(), tried) {
		var res *http.Response
		if res, err = p.ask(ctx, http.MethodGet, p.config.Decodes[at].URL, c, nil); err == nil {
			p.pass(w, res)
			return
		}
		tried[at] = true
	}
	p.fail(ctx, w, err)
}

// refuse answers with an error in OpenAI's words.
func (p *Proxy) refuse(w http.ResponseWriter, status int, message string) {
	p.patience(w)
	kind := "invalid_request_error"
	if status >= http.StatusInternalServerError {
		kind = "server_error"
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{
		"error": map[string]any{"message": message, "type": kind, "param": nil, "code": status}})
}
