package proxy

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"time"
)

// answerBytes bounds what is read of a prefill engine's answer: one token, and parameters.
const answerBytes = 256 << 10

const idHeader = "X-Request-Id"

// complete serves completions.
func (p *Proxy) complete(chat bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, done, ok := p.read(w, r)
		if !ok {
			return
		}
		defer done()
		req, err := parse(body, chat)
		if err != nil {
			p.refuse(w, http.StatusBadRequest, err.Error())
			return
		}
		p.stats.requests.Add(1)
		ctx, cancel := context.WithTimeout(r.Context(), p.config.Timeout)
		defer cancel()
		id := identify(r)
		w.Header().Set(idHeader, id)
		c := call{path: r.URL.Path, headers: passed(r.Header, id)}
		chosen := p.decodes.take(time.Now(), true, nil)
		begun := time.Now()
		params, why := p.prefill(ctx, c, id, req, p.config.Decodes[chosen])
		if ctx.Err() != nil {
			p.fail(ctx, w, ctx.Err())
			return
		}
		if params != nil {
			p.stats.sent.Add(1)
		} else {
			p.stats.computed.Add(1)
		}
		p.config.Log.Debug("request", "id", id, "computed", why, "prefill", time.Since(begun))
		p.decode(ctx, w, c, req, chosen, params)
	}
}

// enter takes the room of a request, or answers that there is none. exit gives it back.
func (p *Proxy) enter(w http.ResponseWriter) bool {
	select {
	case p.slots <- struct{}{}:
		return true
	default:
		p.full(w, fmt.Sprintf("%d requests are under way, as many as may be (--requests)", p.config.Requests))
		return false
	}
}

func (p *Proxy) exit() { <-p.slots }

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
	large := fmt.Sprintf("the body has more than %d bytes (--body): send less, or raise it", p.config.BodyBytes)
	if r.ContentLength > p.config.BodyBytes {
		p.refuse(w, http.StatusRequestEntityTooLarge, large)
		return nil, nil, false
	}
	came := &counter{from: http.MaxBytesReader(w, r.Body, p.config.BodyBytes), p: p}
	body, err := io.ReadAll(came)
	if err == nil {
		if !p.enter(w) {
			came.done()
			return nil, nil, false
		}
		over := working(r)
		done = func() {
			over()
			came.done()
			p.exit()
		}
		// The server's deadline would end the request later on, as a connection that is gone does.
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
		return body, done, true
	}
	came.done()
	var tooLarge *http.MaxBytesError
	switch {
	case errors.Is(err, errFull):
		p.full(w, fmt.Sprintf("bodies of %d bytes are under way, as many as may be (--bodies)", p.config.TotalBytes))
	case errors.As(err, &tooLarge):
		p.refuse(w, http.StatusRequestEntityTooLarge, large)
	case errors.Is(err, os.ErrDeadlineExceeded):
		w.Header().Set("Connection", "close")
		p.refuse(w, http.StatusRequestTimeout, fmt.Sprintf(
			"the body did not come whole within %v (--read-timeout): send it faster, or raise it", p.config.ReadTimeout))
	default:
		w.Header().Set("Connection", "close")
		p.refuse(w, http.StatusBadRequest, "the body did not come whole, or is not chunked as it says: send it again")
	}
	return nil, nil, false
}

var errFull = errors.New("there is no room for a body")

// A counter counts a body among those under way as it comes: who says that much comes, and sends little, takes little.
type counter struct {
	from  io.Reader
	p     *Proxy
	bytes int64
}

// Read implements io.Reader.
func (c *counter) Read(b []byte) (int, error) {
	n, err := c.from.Read(b)
	c.bytes += int64(n)
	if c.p.bytes.Add(int64(n)) > c.p.config.TotalBytes {
		return n, errFull
	}
	return n, err
}

// done gives the room back.
func (c *counter) done() { c.p.bytes.Add(-c.bytes) }

// identify is what a client calls its request, or a name of ours.
func identify(r *http.Request) string {
	id := r.Header.Get(idHeader)
	good := len(id) > 0 && len(id) <= 96
	for _, c := range []byte(id) {
		good = good && c > ' ' && c < 0x7f
	}
	if !good {
		id = drawn(16)
	}
	return id
}

func drawn(bytes int) string {
	b := make([]byte, bytes)
	_, _ = rand.Read(b) // It never fails.
	return hex.EncodeToString(b)
}

// A call is what both engines are asked alike.
type call struct {
	path    string
	headers http.Header
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

// prefill has a prompt computed by a prefill engine, which sends the cache to the decode engine d. It gives what d is
// to be told of it, or why the prompt is to be computed.
func (p *Proxy) prefill(ctx context.Context, c call, id string, r request, d Decode) (json.RawMessage, string) {
	if why := r.computed(); why != "" {
		return nil, why
	}
	begun := time.Now()
	at := p.prefills.take(begun, false, nil)
	if at < 0 {
		return nil, "no prefill engine"
	}
	// Both engines' agents know the request by this name. A client may give two of its requests one id; and who
	// could guess another one's name would get its cache.
	body, err := r.forPrefill(id+"-"+drawn(8), d)
	if err != nil {
		return nil, err.Error()
	}
	short, cancel := context.WithTimeout(ctx, p.config.PrefillTimeout)
	defer cancel()
	params, code, err := p.prefilled(short, c, p.config.Prefills[at], body)
	if ctx.Err() != nil {
		p.prefills.left(at, begun, time.Now())
		return nil, ""
	}
	if err == nil && code < http.StatusInternalServerError {
		p.prefills.answered(at, begun, true)
	}
	if params != nil {
		return params, ""
	}
	why := fmt.Sprintf("the prefill engine answers %d without kv_transfer_params", code)
	if err != nil {
		why = err.Error()
	}
	if err != nil || code >= http.StatusInternalServerError {
		p.prefills.failed(at, begun, time.Now(), 0)
	}
	p.log.Warn("a prompt is computed by the decode engine", p.config.Prefills[at].String(), "request", id, "why", why)
	return nil, why
}

func (p *Proxy) prefilled(ctx context.Context, c call, engine *url.URL, body pieces) (json.RawMessage, int, error) {
	res, err := p.ask(ctx, http.MethodPost, engine, c, body)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(res.Body, answerBytes+1))
	switch {
	case err != nil:
		return nil, res.StatusCode, err
	case len(answer) > answerBytes:
		return nil, res.StatusCode, fmt.Errorf("its answer has more than %d bytes", answerBytes)
	case res.StatusCode != http.StatusOK:
		return nil, res.StatusCode, nil
	}
	return answered(answer), res.StatusCode, nil
}
