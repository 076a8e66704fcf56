package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/kvferry/kvferry/effects"
)

// answerBytesMax bounds the answer that is read from a prefill engine: a token, and parameters.
const answerBytesMax = 256 << 10

const idHeader = "X-Request-Id"

// handleCompletion returns the handler of requests that generate text.
func (p *Proxy) handleCompletion(a *endpoint) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		key, ok := p.admitClient(w, r)
		if !ok {
			return
		}
		body, done, ok := p.readBody(w, r)
		if !ok {
			return
		}
		defer done()
		req, err := parseRequest(body, a)
		if err == nil {
			err = req.checkSupported()
		}
		if err == nil && p.keys != nil {
			err = req.setSalt(key)
		}
		if err != nil {
			p.refuseRequest(w, http.StatusBadRequest, err.Error())
			return
		}
		p.stats.requests.Add(1)
		ctx, cancel := context.WithTimeout(r.Context(), p.config.Timeout)
		defer cancel()
		c := p.newCall(w, r)
		defer func() { p.metrics.requestTime.observeTime(a.path, time.Since(c.begun)) }()
		served := p.serveSpan(&c, a.path, r)
		defer func() { served.end(c.id, ctx.Err()) }()
		chosen := p.decodes.nextEngine(time.Now(), true, nil)
		params, why := p.prefillPrompt(ctx, c, req, p.config.Decodes[chosen])
		if ctx.Err() != nil {
			p.failRequest(ctx, w, ctx.Err())
			return
		}
		if params != nil {
			p.stats.sent.Add(1)
		} else {
			p.stats.computed[why].Add(1)
		}
		p.config.Log.Debug("request", "id", c.id, "computed", why, "prefill", time.Since(c.begun))
		p.serveFromDecode(ctx, w, c, req, chosen, params)
	}
}

// reserveSlot reserves a slot of the requests in flight, or answers the request with an error if there is no slot.
// release gives the slot back.
func (p *Proxy) reserveSlot(w http.ResponseWriter, r *http.Request) (release func(), ok bool) {
	address := addressOf(r)
	if err := p.slots.takeShare(address, 1); err != nil {
		p.refuseFull(w, fmt.Sprintf("requests in flight: %v (--requests %d)", err, p.config.MaxRequests))
		return nil, false
	}
	return func() { p.slots.returnShare(address, 1) }, true
}

// refuseFull answers a request for which there is no room.
func (p *Proxy) refuseFull(w http.ResponseWriter, why string) {
	p.stats.refused.Add(1)
	p.log.Warn("a request is refused, because a limit is reached", "", "limit", why,
		"remedy", "raise the limit, or run another proxy beside this proxy")
	w.Header().Set("Retry-After", "1")
	p.refuseRequest(w, http.StatusServiceUnavailable, why+": try again, raise the limit, or run another proxy beside this proxy")
}

// readBody reads a request's body and reserves a slot for the request. If ok is false, readBody has answered the
// request with an error. done releases the slot and the bytes. Until the body is complete only the bytes count, because
// otherwise slow clients would occupy all slots.
func (p *Proxy) readBody(w http.ResponseWriter, r *http.Request) (body []byte, done func(), ok bool) {
	if given := r.Header.Get("Content-Type"); !isJSON(given) {
		// A web page may make a browser send any type except JSON without a preflight request.
		closeUnread(w)
		p.refuseRequest(w, http.StatusUnsupportedMediaType, fmt.Sprintf(
			"Content-Type is %.80q: send JSON with Content-Type application/json", given))
		return nil, nil, false
	}
	large := fmt.Sprintf("the body has more than %d bytes (--body): send a shorter body, or raise the limit", p.config.MaxBodyBytes)
	if r.ContentLength > p.config.MaxBodyBytes {
		closeUnread(w)
		p.refuseRequest(w, http.StatusRequestEntityTooLarge, large)
		return nil, nil, false
	}
	metered := &meteredBody{source: http.MaxBytesReader(w, r.Body, p.config.MaxBodyBytes), shares: p.bodies,
		address: addressOf(r)}
	body, err := io.ReadAll(metered)
	if err == nil {
		release, ok := p.reserveSlot(w, r)
		if !ok {
			metered.releaseBytes()
			return nil, nil, false
		}
		unmark := markWorking(r)
		done = func() {
			unmark()
			metered.releaseBytes()
			release()
		}
		// The server's read deadline would cancel the request later, as a lost connection does.
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
		return body, done, true
	}
	metered.releaseBytes()
	closeUnread(w)
	var tooLarge *http.MaxBytesError
	var noRoom *shareError
	switch {
	case errors.As(err, &noRoom):
		p.refuseFull(w, fmt.Sprintf("bytes of bodies in flight: %v (--bodies %d)", noRoom, p.config.MaxTotalBytes))
	case errors.As(err, &tooLarge):
		p.refuseRequest(w, http.StatusRequestEntityTooLarge, large)
	case errors.Is(err, os.ErrDeadlineExceeded):
		p.refuseRequest(w, http.StatusRequestTimeout, fmt.Sprintf(
			"the body did not arrive completely within %v (--read-timeout): send the body faster, or raise the timeout", p.config.ReadTimeout))
	default:
		p.refuseRequest(w, http.StatusBadRequest,
			"the body did not arrive completely, or its chunked encoding is invalid: send the request again")
	}
	return nil, nil, false
}

// closeUnread makes the server close the connection after the response. Otherwise the server would read the rest of the
// body before the response, and a slow client would learn late about the refusal.
func closeUnread(w http.ResponseWriter) { w.Header().Set("Connection", "close") }

// A meteredBody takes the bytes of a body out of shares as they arrive, so a client that announces a long body and
// sends little occupies little.
type meteredBody struct {
	source  io.Reader
	shares  *shares
	address netip.Prefix
	bytes   int64
}

// Read implements io.Reader.
func (c *meteredBody) Read(b []byte) (int, error) {
	n, err := c.source.Read(b)
	if n > 0 {
		if err := c.shares.takeShare(c.address, int64(n)); err != nil {
			return n, err
		}
		c.bytes += int64(n)
	}
	return n, err
}

// releaseBytes gives the bytes back.
func (c *meteredBody) releaseBytes() {
	if c.bytes > 0 {
		c.shares.returnShare(c.address, c.bytes)
	}
}

func isJSON(contentType string) bool {
	kind, _, _ := strings.Cut(contentType, ";")
	return strings.EqualFold(strings.TrimSpace(kind), "application/json")
}

// requestID returns the client's name for the request, or a new name.
func requestID(r *http.Request) string {
	id := r.Header.Get(idHeader)
	good := len(id) > 0 && len(id) <= 96
	for _, c := range []byte(id) {
		good = good && c > ' ' && c < 0x7f
	}
	if !good {
		id = uuid.NewString()
	}
	return id
}

// A call holds the common parts of the requests to both engines.
type call struct {
	path    string
	id      string // the client's name for the request, or a random name
	headers http.Header
	begun   time.Time
	trace   effects.TraceContext // the proxy's span; zero: the request is not sampled
}

// newCall names a request. The name is also a header of the response.
func (p *Proxy) newCall(w http.ResponseWriter, r *http.Request) call {
	id := requestID(r)
	w.Header().Set(idHeader, id)
	headers := passedHeaders(r.Header, id)
	if p.engineKey != "" {
		headers.Set("Authorization", "Bearer "+p.engineKey)
	}
	return call{path: r.URL.Path, id: id, headers: headers, begun: time.Now()}
}

// passedHeaders returns the headers that engines get.
func passedHeaders(from http.Header, id string) http.Header {
	h := http.Header{"Content-Type": {"application/json"}, idHeader: {id}}
	for _, name := range []string{"Authorization", "Accept", "Traceparent", "Tracestate"} {
		if values := from[name]; len(values) > 0 {
			h[name] = values
		}
	}
	return h
}

// sendToEngine sends a call to an engine, and does not follow redirects.
func (p *Proxy) sendToEngine(ctx context.Context, method string, engine *url.URL, c call, body bodyParts) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, engine.JoinPath(c.path).String(), nil)
	if err != nil {
		return nil, err
	}
	if body != nil {
		r.Body, r.ContentLength = body.newReader(), body.totalBytes()
		r.GetBody = func() (io.ReadCloser, error) { return body.newReader(), nil }
	}
	r.Header = c.headers
	res, err := p.transport.RoundTrip(r)
	if err == nil && res.StatusCode < http.StatusOK {
		_ = res.Body.Close()
		return nil, fmt.Errorf("the engine answers with status %d, which is not a final status", res.StatusCode)
	}
	return res, err
}

// A computeReason says why the decode engine computes a prompt.
type computeReason int

const (
	reasonInput    computeReason = iota // a field of the request prevents sending the cache
	reasonNoEngine                      // there is no prefill engine, or all prefill engines rest
	reasonNotSent                       // the prefill engine answered and sent no cache
	reasonRefused                       // the prefill engine refused the request, as the decode engine will
	reasonLate                          // the prefill engine did not answer in time
	reasonFailed                        // the prefill engine failed in another way
	reasonCount                         // their number
)

// String implements fmt.Stringer. The text is also the label of a metric.
func (r computeReason) String() string {
	return [reasonCount]string{"input", "no_prefill_engine", "not_sent", "refused", "late", "prefill_failed"}[r]
}

// prefillPrompt lets a prefill engine compute a prompt and send the cache to the decode engine d. The results are the
// parameters for d, or the reason why d computes the prompt.
func (p *Proxy) prefillPrompt(ctx context.Context, c call, r request, d DecodeEngine) (json.RawMessage, computeReason) {
	if r.uncachedField() != "" {
		return nil, reasonInput
	}
	begun := time.Now()
	at := p.prefills.nextEngine(begun, false, nil)
	if at < 0 {
		return nil, reasonNoEngine
	}
	// Both engines' agents know the request by this name. The name is random because a client may use the same id for
	// two requests, and because a client that guesses the name of another client's request would get that request's
	// cache.
	body, err := r.prefillBody(c.id+"-"+uuid.NewString(), d)
	if err != nil {
		return nil, reasonInput
	}
	short, cancel := context.WithTimeout(ctx, p.config.PrefillTimeout)
	defer cancel()
	params, err := p.sendToPrefill(short, c, p.prefills.urls[at], body)
	var failed statusError
	switch {
	case ctx.Err() != nil:
		p.prefills.abandonTrial(at, begun, time.Now())
		return nil, 0
	case err == nil:
		p.prefills.onAnswer(at, begun, true)
		p.metrics.prefillTime.observeTime(c.path, time.Since(begun))
		return params, 0
	}
	cause := reasonFailed
	switch {
	case errors.As(err, &failed) && failed < http.StatusInternalServerError:
		cause = reasonRefused
	case errors.Is(err, errNotSent):
		cause = reasonNotSent
	case errors.Is(err, context.DeadlineExceeded) && !isDialError(err):
		cause = reasonLate
	}
	if cause == reasonRefused || cause == reasonNotSent {
		p.prefills.onAnswer(at, begun, true)
	} else {
		p.handleFailure(ctx, p.prefills, at, begun, c, r, err)
	}
	p.log.Warn("a prompt is computed by the decode engine", p.prefills.urls[at].String(), "request", c.id, "why", err)
	return nil, cause
}

var errNotSent = errors.New("the prefill engine answers without kv_transfer_params")

// sendToPrefill sends a request to a prefill engine and returns the parameters in the answer.
func (p *Proxy) sendToPrefill(ctx context.Context, c call, engine *url.URL, body bodyParts) (params json.RawMessage, err error) {
	c, sent := p.engineSpan(c, "prefill")
	defer func() { sent.end(c.id, err) }()
	res, err := p.sendToEngine(ctx, http.MethodPost, engine, c, body)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(res.Body, answerBytesMax+1))
	switch {
	case err != nil:
		return nil, err
	case res.StatusCode != http.StatusOK:
		return nil, statusError(res.StatusCode)
	case len(answer) > answerBytesMax:
		return nil, fmt.Errorf("the engine's answer has more than %d bytes", answerBytesMax)
	}
	if params = cacheParams(answer); params == nil {
		return nil, errNotSent
	}
	return params, nil
}
