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
)

// answerBytes bounds what is read of a prefill engine's answer: one token, and parameters.
const answerBytes = 256 << 10

const idHeader = "X-Request-Id"

// complete serves requests for text.
func (p *Proxy) complete(a *api) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, done, ok := p.read(w, r)
		if !ok {
			return
		}
		defer done()
		req, err := parse(body, a)
		if err == nil {
			err = req.refused()
		}
		if err != nil {
			p.refuse(w, http.StatusBadRequest, err.Error())
			return
		}
		p.stats.requests.Add(1)
		ctx, cancel := context.WithTimeout(r.Context(), p.config.Timeout)
		defer cancel()
		c := newCall(w, r)
		defer func() { p.metrics.whole.observe(a.path, time.Since(c.begun)) }()
		chosen := p.decodes.take(time.Now(), true, nil)
		params, why := p.prefill(ctx, c, req, p.config.Decodes[chosen])
		if ctx.Err() != nil {
			p.fail(ctx, w, ctx.Err())
			return
		}
		if params != nil {
			p.stats.sent.Add(1)
		} else {
			p.stats.computed[why].Add(1)
		}
		p.config.Log.Debug("request", "id", c.id, "computed", why, "prefill", time.Since(c.begun))
		p.decode(ctx, w, c, req, chosen, params)
	}
}

// enter takes the room of a request, or answers that there is none. exit gives it back.
func (p *Proxy) enter(w http.ResponseWriter, r *http.Request) (exit func(), ok bool) {
	address := addressOf(r)
	if err := p.slots.take(address, 1); err != nil {
		p.full(w, fmt.Sprintf("requests under way: %v (--requests %d)", err, p.config.Requests))
		return nil, false
	}
	return func() { p.slots.give(address, 1) }, true
}

// full answers a request for which there is no room.
func (p *Proxy) full(w http.ResponseWriter, why string) {
	p.stats.refused.Add(1)
	p.log.Warn("a request is refused: there is no room", "", "limit", why,
		"remedy", "raise the limit, or run another proxy beside this one")
	w.Header().Set("Retry-After", "1")
	p.refuse(w, http.StatusServiceUnavailable, why+": try again, raise it, or run another proxy beside this one")
}

// read takes a request's body, when there is room for the request. It answers those that it does not take. done gives
// the room back. Nothing but its bytes is taken before a body is whole: else slow ones would keep others out.
func (p *Proxy) read(w http.ResponseWriter, r *http.Request) (body []byte, done func(), ok bool) {
	if given := r.Header.Get("Content-Type"); !isJSON(given) {
		// A page in a browser may send any other kind anywhere, without asking whether it may.
		unread(w)
		p.refuse(w, http.StatusUnsupportedMediaType, fmt.Sprintf(
			"Content-Type is %.80q: send JSON, and say so by application/json", given))
		return nil, nil, false
	}
	large := fmt.Sprintf("the body has more than %d bytes (--body): send less, or raise it", p.config.BodyBytes)
	if r.ContentLength > p.config.BodyBytes {
		unread(w)
		p.refuse(w, http.StatusRequestEntityTooLarge, large)
		return nil, nil, false
	}
	came := &counter{from: http.MaxBytesReader(w, r.Body, p.config.BodyBytes), of: p.bodies,
		address: addressOf(r)}
	body, err := io.ReadAll(came)
	if err == nil {
		exit, ok := p.enter(w, r)
		if !ok {
			came.done()
			return nil, nil, false
		}
		over := working(r)
		done = func() {
			over()
			came.done()
			exit()
		}
		// The server's deadline would end the request later on, as a connection that is gone does.
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
		return body, done, true
	}
	came.done()
	unread(w)
	var tooLarge *http.MaxBytesError
	var noRoom *shareError
	switch {
	case errors.As(err, &noRoom):
		p.full(w, fmt.Sprintf("bytes of bodies under way: %v (--bodies %d)", noRoom, p.config.TotalBytes))
	case errors.As(err, &tooLarge):
		p.refuse(w, http.StatusRequestEntityTooLarge, large)
	case errors.Is(err, os.ErrDeadlineExceeded):
		p.refuse(w, http.StatusRequestTimeout, fmt.Sprintf(
			"the body did not come whole within %v (--read-timeout): send it faster, or raise it", p.config.ReadTimeout))
	default:
		p.refuse(w, http.StatusBadRequest, "the body did not come whole, or is not chunked as it says: send it again")
	}
	return nil, nil, false
}

// unread says that a request's body is not read to its end. The server would wait for the rest of it before it sends
// the answer, and a client that is slow would learn late that it is refused.
func unread(w http.ResponseWriter) { w.Header().Set("Connection", "close") }

// A counter counts a body among those under way as it comes: a client that says that much comes, and sends little,
// takes little.
type counter struct {
	from    io.Reader
	of      *shares
	address netip.Prefix
	bytes   int64
}

// Read implements io.Reader.
func (c *counter) Read(b []byte) (int, error) {
	n, err := c.from.Read(b)
	if n > 0 {
		if err := c.of.take(c.address, int64(n)); err != nil {
			return n, err
		}
		c.bytes += int64(n)
	}
	return n, err
}

// done gives the room back.
func (c *counter) done() {
	if c.bytes > 0 {
		c.of.give(c.address, c.bytes)
	}
}

func isJSON(contentType string) bool {
	kind, _, _ := strings.Cut(contentType, ";")
	return strings.EqualFold(strings.TrimSpace(kind), "application/json")
}

// identify is what a client calls its request, or a name of ours.
func identify(r *http.Request) string {
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

// A call is what both engines are asked alike.
type call struct {
	path    string
	id      string // the client's name for it, or one of ours
	headers http.Header
	begun   time.Time
}

// newCall gives a request its name, which its answer says, too.
func newCall(w http.ResponseWriter, r *http.Request) call {
	id := identify(r)
	w.Header().Set(idHeader, id)
	return call{path: r.URL.Path, id: id, headers: passed(r.Header, id), begun: time.Now()}
}

// passed are the headers that engines get.
func passed(from http.Header, id string) http.Header {
	h := http.Header{"Content-Type": {"application/json"}, idHeader: {id}}
	for _, name := range []string{"Authorization", "Accept", "Traceparent", "Tracestate"} {
		if values := from[name]; len(values) > 0 {
			h[name] = values
		}
	}
	return h
}

// ask sends a call to an engine. Redirects are not followed.
func (p *Proxy) ask(ctx context.Context, method string, engine *url.URL, c call, body pieces) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, engine.JoinPath(c.path).String(), nil)
	if err != nil {
		return nil, err
	}
	if body != nil {
		r.Body, r.ContentLength = body.reader(), body.len()
		r.GetBody = func() (io.ReadCloser, error) { return body.reader(), nil }
	}
	r.Header = c.headers
	res, err := p.transport.RoundTrip(r)
	if err == nil && res.StatusCode < http.StatusOK {
		_ = res.Body.Close()
		return nil, fmt.Errorf("it answers %d, which is no answer", res.StatusCode)
	}
	return res, err
}

// A reason is why a prompt is computed by the decode engine.
type reason int

const (
	byInput     reason = iota // its cache cannot be sent, for what the request says
	noEngine                  // there is no prefill engine, or all rest
	notSent                   // the prefill engine answered, and sent no cache
	refusedIt                 // the prefill engine refused the request, as the decode engine will
	lateEngine                // it did not answer in time
	engineFails               // it failed otherwise
	reasons                   // how many there are
)

// String implements fmt.Stringer. It is a label of a metric, too.
func (r reason) String() string {
	return [reasons]string{"input", "no_prefill_engine", "not_sent", "refused", "late", "prefill_failed"}[r]
}

// prefill has a prompt computed by a prefill engine, which sends the cache to the decode engine d. It gives what d is
// to be told of it, or why d computes the prompt.
func (p *Proxy) prefill(ctx context.Context, c call, r request, d Decode) (json.RawMessage, reason) {
	if r.computed() != "" {
		return nil, byInput
	}
	begun := time.Now()
	at := p.prefills.take(begun, false, nil)
	if at < 0 {
		return nil, noEngine
	}
	// Both engines' agents know the request by this name. A client may give two of its requests one id; and who
	// could guess another one's name would get its cache.
	body, err := r.forPrefill(c.id+"-"+uuid.NewString(), d)
	if err != nil {
		return nil, byInput
	}
	short, cancel := context.WithTimeout(ctx, p.config.PrefillTimeout)
	defer cancel()
	params, err := p.prefilled(short, c, p.prefills.urls[at], body)
	var failed statusError
	switch {
	case ctx.Err() != nil:
		p.prefills.left(at, begun, time.Now())
		return nil, 0
	case err == nil:
		p.prefills.answered(at, begun, true)
		p.metrics.prefill.observe(c.path, time.Since(begun))
		return params, 0
	}
	why := engineFails
	switch {
	case errors.As(err, &failed) && failed < http.StatusInternalServerError:
		why = refusedIt
	case errors.Is(err, errNotSent):
		why = notSent
	case errors.Is(err, context.DeadlineExceeded) && !isDial(err):
		why = lateEngine
	}
	if why == refusedIt || why == notSent {
		p.prefills.answered(at, begun, true)
	} else {
		p.blame(ctx, p.prefills, at, begun, c, r, err)
	}
	p.log.Warn("a prompt is computed by the decode engine", p.prefills.urls[at].String(), "request", c.id, "why", err)
	return nil, why
}

var errNotSent = errors.New("the prefill engine answers without kv_transfer_params")

func (p *Proxy) prefilled(ctx context.Context, c call, engine *url.URL, body pieces) (json.RawMessage, error) {
	res, err := p.ask(ctx, http.MethodPost, engine, c, body)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(res.Body, answerBytes+1))
	switch {
	case err != nil:
		return nil, err
	case res.StatusCode != http.StatusOK:
		return nil, statusError(res.StatusCode)
	case len(answer) > answerBytes:
		return nil, fmt.Errorf("its answer has more than %d bytes", answerBytes)
	}
	params := answered(answer)
	if params == nil {
		return nil, errNotSent
	}
	return params, nil
}
