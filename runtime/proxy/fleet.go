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

// A fleet is the engines of one kind, prefill or decode. Engines are named by their places in the configuration.
type fleet struct {
	*turns
	kind   string
	urls   []*url.URL
	pulses []pulse
}

func newFleet(kind string, urls []*url.URL, rest, trial time.Duration) *fleet {
	return &fleet{turns: newTurns(len(urls), rest, trial), kind: kind, urls: urls, pulses: make([]pulse, len(urls))}
}

// A verdict is what was found out about an engine.
type verdict int

const (
	unknown verdict = iota // another request is finding out, the proxy stops, or it lacks what asking needs
	isWell
	isIll
)

// modelBytes bounds the name of a model by which an engine is asked for one token.
const modelBytes = 4 << 10

// blame is told that an engine did not answer a request, or not as an engine that is well would. The request may be the
// reason: a client can send one that fails, breaks off or takes too long at every engine. So only an engine that cannot
// be reached rests at once, and any other is asked for its health first, in the background: nobody waits for that.
// Nothing is held against an engine when the client left or this process lacked a file, nor when an answer took longer
// than Config.Timeout while the engine gave signs of life.
func (p *Proxy) blame(ctx context.Context, f *fleet, at int, begun time.Time, c call, r request, err error) {
	now := time.Now()
	switch {
	case canceled(ctx), isOurShortage(err), ctx.Err() != nil && !f.pulses[at].silent(p.config.Silence):
		f.left(at, begun, now)
	case isDial(err):
		p.rest(f, at, begun, err)
	default:
		// Only a prefill engine was late when it hangs; the health of a decode engine is watched while it is asked.
		late := f == p.prefills && errors.Is(err, context.DeadlineExceeded)
		var model json.RawMessage
		if given := r.fields["model"]; late && len(given) <= modelBytes {
			model = slices.Clone(given) // The request's body is not kept.
		}
		p.working.Go(func() { p.judge(f, at, begun, c, model, err, late) })
	}
}

func (p *Proxy) rest(f *fleet, at int, begun time.Time, err error) {
	f.failed(at, begun, time.Now(), 0)
	p.log.Warn("a "+f.kind+" engine fails: others are asked for a while", f.urls[at].String(), "err", err, "remedy",
		remedyOf(f.kind, err))
}

// remedyOf returns what to do about an engine that cannot be reached or is not well.
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

// judge asks an engine that did not answer a request for its health, and has it rest if it is not well.
func (p *Proxy) judge(f *fleet, at int, begun time.Time, c call, model json.RawMessage, err error, late bool) {
	found := p.examine(p.base, f, at)
	if found == isWell && late {
		found = p.responds(f, at, c, model)
	}
	switch found {
	case isIll:
		p.rest(f, at, begun, err)
	case isWell:
		f.answered(at, begun, false)
	case unknown:
		f.left(at, begun, time.Now())
	}
	p.judged.Add(1)
}

// examine asks an engine for its health. Of several requests that want to know, one asks.
func (p *Proxy) examine(ctx context.Context, f *fleet, at int) verdict {
	u := &f.pulses[at]
	if !u.asking.TryLock() {
		return unknown
	}
	defer u.asking.Unlock()
	short, cancel := context.WithTimeout(ctx, p.healthWait)
	defer cancel()
	found := p.askHealth(short, f.urls[at])
	if found == isWell {
		u.beat()
	}
	if ctx.Err() != nil {
		return unknown
	}
	return found
}

func (p *Proxy) askHealth(ctx context.Context, engine *url.URL) verdict {
	res, err := p.ask(ctx, http.MethodGet, engine, call{path: "/health", headers: http.Header{}}, nil)
	return verdictOf(res, err, func(status int) bool { return status == http.StatusOK })
}

// responds asks an engine that is said to be well for one token, as the client whose request was late. vLLM's /health
// tells of an engine that died, not of one that stands still. The late request has been given up by now, so an engine
// that was only busy with it has time again.
func (p *Proxy) responds(f *fleet, at int, c call, model json.RawMessage) verdict {
	ctx, cancel := context.WithTimeout(p.base, p.healthWait)
	defer cancel()
	fields := map[string]json.RawMessage{"prompt": json.RawMessage("[1]"), "max_tokens": json.RawMessage("1")}
	if model != nil {
		fields["model"] = model
	}
	c.path = completions.path
	res, err := p.ask(ctx, http.MethodPost, f.urls[at], c, joined(fields))
	if p.base.Err() != nil {
		return unknown
	}
	return verdictOf(res, err, func(status int) bool { return status < http.StatusInternalServerError })
}

// verdictOf says what an answer tells of its engine, and ends it.
func verdictOf(res *http.Response, err error, well func(status int) bool) verdict {
	if err != nil {
		if isOurShortage(err) {
			return unknown
		}
		return isIll
	}
	_ = res.Body.Close()
	if well(res.StatusCode) {
		return isWell
	}
	return isIll
}

// statusError is an answer that an engine gives when it fails.
type statusError int

// Error implements error.
func (s statusError) Error() string { return fmt.Sprintf("it answers %d", int(s)) }
