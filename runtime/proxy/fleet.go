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
	*roundRobin
	kind       string
	urls       []*url.URL
	activities []activity
}

func newFleet(kind string, urls []*url.URL, rest, trial time.Duration) *fleet {
	return &fleet{roundRobin: newRoundRobin(len(urls), rest, trial), kind: kind, urls: urls, activities: make([]activity, len(urls))}
}

// A healthResult is the result of a health check of an engine.
type healthResult int

const (
	healthUnknown healthResult = iota // another request is checking, the proxy stops, or the proxy lacks a file
	healthy
	unhealthy
)

// modelBytesMax bounds the name of the model in a probe for a token.
const modelBytesMax = 4 << 10

// handleFailure is called when an engine did not answer a request as a healthy engine would. The request may be the
// cause: a client can send a request that fails, breaks off or takes too long at every engine. Therefore only an engine
// that cannot be reached rests at once. All further engines get a health check first, in the background, so that no
// request waits for it. A failure does not count against an engine if the client left, if this process lacked a file,
// or if the answer took longer than Config.Timeout while the engine kept sending.
func (p *Proxy) handleFailure(ctx context.Context, f *fleet, at int, begun time.Time, c call, r request, err error) {
	now := time.Now()
	switch {
	case isCanceled(ctx), isLocalShortage(err), ctx.Err() != nil && !f.activities[at].isSilent(p.config.SilenceTimeout):
		f.abandonTrial(at, begun, now)
	case isDialError(err):
		p.restEngine(f, at, begun, err)
	default:
		// Only lateness shows that a prefill engine hangs; decode engines are watched while requests are in flight.
		late := f == p.prefills && errors.Is(err, context.DeadlineExceeded)
		var model json.RawMessage
		if given := r.fields["model"]; late && len(given) <= modelBytesMax {
			model = slices.Clone(given) // Copied, so that the request's body can be freed.
		}
		p.inFlight.Go(func() { p.checkAfterFailure(f, at, begun, c, model, err, late) })
	}
}

// restEngine lets an engine rest because of err, and logs err.
func (p *Proxy) restEngine(f *fleet, at int, begun time.Time, err error) {
	f.onFailure(at, begun, time.Now(), 0)
	p.log.Warn("a "+f.kind+" engine fails: requests go to the other engines for a while", f.urls[at].String(), "err", err, "remedy",
		remedyOf(f.kind, err))
}

// remedyOf returns what the operator should check about an engine that cannot be reached or is not healthy.
func remedyOf(kind string, err error) string {
	var name *net.DNSError
	switch {
	case errors.As(err, &name):
		return fmt.Sprintf("correct the host name %q in --%s, or add the name to this host's name server or /etc/hosts",
			name.Name, kind)
	case isDialError(err):
		return "check that the engine runs, and that host and port in --" + kind + " are correct"
	}
	return "look at the engine's log"
}

// checkAfterFailure checks the health of an engine that failed a request, and lets the engine rest if the check fails.
func (p *Proxy) checkAfterFailure(
	f *fleet, at int, begun time.Time, c call, model json.RawMessage, err error, late bool,
) {
	found := p.checkHealth(p.baseCtx, f, at)
	if found == healthy && late {
		found = p.probeEngine(f, at, c, model)
	}
	switch found {
	case unhealthy:
		p.restEngine(f, at, begun, err)
	case healthy:
		f.onAnswer(at, begun, false)
	case healthUnknown:
		f.abandonTrial(at, begun, time.Now())
	}
	p.failuresChecked.Add(1)
}

// checkHealth checks an engine's health. If several requests need the result, only one checks.
func (p *Proxy) checkHealth(ctx context.Context, f *fleet, at int) healthResult {
	u := &f.activities[at]
	if !u.checkMutex.TryLock() {
		return healthUnknown
	}
	defer u.checkMutex.Unlock()
	short, cancel := context.WithTimeout(ctx, p.healthWait)
	defer cancel()
	found := p.getHealth(short, f.urls[at])
	if found == healthy {
		u.recordActivity()
	}
	if ctx.Err() != nil {
		return healthUnknown
	}
	return found
}

// getHealth sends a health request to an engine.
func (p *Proxy) getHealth(ctx context.Context, engine *url.URL) healthResult {
	res, err := p.sendToEngine(ctx, http.MethodGet, engine, call{path: "/health", headers: http.Header{}}, nil)
	return healthResultOf(res, err, func(status int) bool { return status == http.StatusOK })
}

// probeEngine asks an engine with a good /health for a token, with the headers of the late request. The /health of vLLM
// reports an engine that died, but not an engine that hangs. The late request has been given up by now, so an engine
// that was only busy has time again.
func (p *Proxy) probeEngine(f *fleet, at int, c call, model json.RawMessage) healthResult {
	ctx, cancel := context.WithTimeout(p.baseCtx, p.healthWait)
	defer cancel()
	fields := map[string]json.RawMessage{"prompt": json.RawMessage("[1]"), "max_tokens": json.RawMessage("1")}
	if model != nil {
		fields["model"] = model
	}
	c.path = completions.path
	res, err := p.sendToEngine(ctx, http.MethodPost, f.urls[at], c, joinFields(fields))
	if p.baseCtx.Err() != nil {
		return healthUnknown
	}
	return healthResultOf(res, err, func(status int) bool { return status < http.StatusInternalServerError })
}

// healthResultOf returns the verdict that a response implies, and closes the response.
func healthResultOf(res *http.Response, err error, isWell func(status int) bool) healthResult {
	if err != nil {
		if isLocalShortage(err) {
			return healthUnknown
		}
		return unhealthy
	}
	_ = res.Body.Close()
	if isWell(res.StatusCode) {
		return healthy
	}
	return unhealthy
}

// statusError is the status of a response by which an engine reports a failure.
type statusError int

// Error implements error.
func (s statusError) Error() string { return fmt.Sprintf("the engine answers with status %d", int(s)) }
