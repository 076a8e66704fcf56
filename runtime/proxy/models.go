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
	modelsTimeout = 5 * time.Second // for one engine: the next one may answer
	modelsBytes   = 1 << 20
)

// models says what the first decode engine that answers serves. It takes the room of a request: else clients that only
// ask this could have all connections.
func (p *Proxy) models(w http.ResponseWriter, r *http.Request) {
	if !p.enter(w) {
		return
	}
	defer p.exit()
	defer working(r)()
	c := call{path: r.URL.Path, headers: passed(r.Header, identify(r))}
	tried := map[int]bool{}
	var err error
	for at := p.decodes.look(time.Now(), nil); at >= 0; at = p.decodes.look(time.Now(), tried) {
		var res *http.Response
		if res, err = p.modelsOf(r.Context(), c, at); err == nil {
			_, _ = p.pass(w, res, &p.pulses[at]) // All of it is here: it does not break off.
			return
		}
		if canceled(r.Context()) {
			panic(http.ErrAbortHandler)
		}
		tried[at] = true
	}
	p.log.Warn("no decode engine says its models", "", "err", err)
	p.refuse(w, http.StatusBadGateway, noDecode)
}

func (p *Proxy) modelsOf(ctx context.Context, c call, at int) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, modelsTimeout)
	defer cancel()
	res, err := p.ask(ctx, http.MethodGet, p.config.Decodes[at].URL, c, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(res.Body, modelsBytes+1))
	if err == nil && len(answer) > modelsBytes {
		err = fmt.Errorf("its answer has more than %d bytes", modelsBytes)
	}
	res.Body = io.NopCloser(bytes.NewReader(answer))
	return res, err
}
