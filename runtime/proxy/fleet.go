package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"
)

// A fleet holds the engines of a kind, prefill or decode. An engine is identified by the index in the configuration.
type fleet struct {
	*turns
	kind   string
	urls   []*url.URL
	pulses []pulse
}

func newFleet(kind string, urls []*url.URL, rest, trial time.Duration) *fleet {
	return &fleet{turns: newTurns(len(urls), rest, trial), kind: kind, urls: urls, pulses: make([]pulse, len(urls))}
}

// A verdict is the result of a health check of an engine.
type verdict int

const (
	undecided verdict = iota // another request is checking, the proxy stops, or the proxy lacks a file
	healthy
	unhealthy
)

// modelBytes bounds the name of the model in a probe for a token.
const modelBytes = 4 << 10

// handleFailure is called when an engine did not answer a request as a healthy engine would. The request may be the
// cause: a client can send a request that fails, breaks off or takes too long at every engine. Therefore only an engine
// that cannot be reached rests at once. All further engines get a health check first, in the background, so that no
// request waits for it. A failure does not count against an engine if the client left, if this process lacked a file,
// or if the answer took longer than Config.Timeout while the engine kept sending.
func (p *Proxy) handleFailure(ctx context.Context, f *fleet, at int, begun time.Time, c call, r request, err error) {
	now := time.Now()
	switch {
	case canceled(ctx), isOurShortage(err), ctx.Err() != nil && !f.pulses[at].silent(p.config.Silence):
		f.clientLeft(at, begun, now)
	case isDial(err):
		p.restEngine(f, at, begun, err)
	default:
		// Only lateness shows that a prefill engine hangs; decode engines are watched while requests are in flight.
		late := f == p.prefills && errors.Is(err, context.DeadlineExceeded)
		var model json.RawMessage
		if given := r.fields["model"]; late && len(given) <= modelBytes {
			model = slices.Clone(given) // Copied, so that the request's body can be freed.
		}
		p.working.Go(func() { p.checkAfterFailure(f, at, begun, c, model, err, late) })
	}
}

// restEngine lets an engine rest because of err, and logs err.
func (p *Proxy) restEngine(f *fleet, at int, begun time.Time, err error) {
	f.failed(at, begun, time.Now(), 0)
	p.log.Warn("a "+f.kind+" engine fails: others are asked for a while", f.urls[at].String(), "err", err, "remedy",
		remedyOf(f.kind, err))
}

// remedyOf returns what the operator should check about an engine that cannot be reached or is not healthy.
func remedyOf(kind string, err error) string {
	var name *net.DNSError
	switch {
	case errors.As(err, &name):
		return fmt.Sprintf("correct the host name %q in --%s, or have this host's name server or /etc/hosts know it",
			name.Name, kind)
	case isDial(err):
		return "look whether the engine runs, and whether host and port in --" + kind + " are its own"
	}
	return "look at the engine's log"
}

// checkAfterFailure checks the health of an engine that failed a request, and lets the engine rest if the check fails.
func (p *Proxy) checkAfterFailure(
	f *fleet, at int, begun time.Time, c call, model json.RawMessage, err error, late bool,
) {
	found := p.checkHealth(p.base, f, at)
	if found == healthy && late {
		found = p.probe(f, at, c, model)
	}
	switch found {
	case unhealthy:
		p.restEngine(f, at, begun, err)
	case healthy:
		f.answered(at, begun, false)
	case undecided:
		f.clientLeft(at, begun, time.Now())
	}
	p.failuresChecked.Add(1)
}

// checkHealth checks an engine's health. If several requests need the result, only one checks.
func (p *Proxy) checkHealth(ctx context.Context, f *fleet, at int) verdict {
	u := &f.pulses[at]
	if !u.asking.TryLock() {
		return undecided
	}
	defer u.asking.Unlock()
	short, cancel := context.WithTimeout(ctx, p.healthWait)
	defer cancel()
	found := p.getHealth(short, f.urls[at])
	if found == healthy {
		u.beat()
	}
	if ctx.Err() != nil {
		return undecided
	}
	return found
}

// getHealth sends a health request to an engine.
func (p *Proxy) getHealth(ctx context.Context, engine *url.URL) verdict {
	res, err := p.ask(ctx, http.MethodGet, engine, call{path: "/health", headers: http.Header{}}, nil)
	return verdictOf(res, err, func(status int) bool { return status == http.StatusOK })
}

// probe asks an engine with a good /health for a token, with the headers of the late request. The /health of vLLM
// reports an engine that died, but not an engine that hangs. The late request has been given up by now, so an engine
// that was only busy has time again.
func (p *Proxy) probe(f *fleet, at int, c call, model json.RawMessage) verdict {
	ctx, cancel := context.WithTimeout(p.base, p.healthWait)
	defer cancel()
	fields := map[string]json.RawMessage{"prompt": json.RawMessage("[1]"), "max_tokens": json.RawMessage("1")}
	if model != nil {
		fields["model"] = model
	}
	c.path = completions.path
	res, err := p.ask(ctx, http.MethodPost, f.urls[at], c, joinFields(fields))
	if p.base.Err() != nil {
		return undecided
	}
	return verdictOf(res, err, func(status int) bool { return status < http.StatusInternalServerError })
}

// verdictOf returns the verdict that a response implies, and closes the response.
func verdictOf(res *http.Response, err error, well func(status int) bool) verdict {
	if err != nil {
		if isOurShortage(err) {
			return undecided
		}
		return unhealthy
	}
	_ = res.Body.Close()
	if well(res.StatusCode) {
		return healthy
	}
	return unhealthy
}

// statusError is the status of a response by which an engine reports a failure.
type statusError int

// Error implements error.
func (s statusError) Error() string { return fmt.Sprintf("it answers %d", int(s)) }
