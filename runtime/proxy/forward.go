package proxy

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// serveFromDecode lets a decode engine answer and passes the answer on. The first try goes to the chosen engine,
// because its agents got the cache; an engine that is tried later computes the prompt.
func (p *Proxy) serveFromDecode(
	ctx context.Context, w http.ResponseWriter, c call, r request, chosen int, params json.RawMessage,
) {
	tried := map[int]bool{}
	for {
		err := p.serveFromEngine(ctx, w, c, r, chosen, params)
		if err == nil {
			return
		}
		if ctx.Err() == nil && isDialError(err) {
			// The request did not reach the engine, so the next engine may be tried. After any different error it must
			// not be, because a request that makes an engine fail could make all engines fail.
			tried[chosen] = true
			if chosen = p.decodes.nextEngine(time.Now(), true, tried); chosen >= 0 {
				params = nil
				continue
			}
		}
		p.failRequest(ctx, w, err)
		return
	}
}

// serveFromEngine sends the request to a decode engine and passes the answer on. After an error the client has received
// nothing yet.
func (p *Proxy) serveFromEngine(
	ctx context.Context, w http.ResponseWriter, c call, r request, at int, params json.RawMessage,
) (err error) {
	begun := time.Now()
	c, sent := p.engineSpan(c, "decode")
	defer func() { sent.end(c.id, cmp.Or(err, ctx.Err())) }()
	defer p.watchEngine(ctx, at, begun)()
	res, err := p.sendToDecode(ctx, c, r, at, params)
	if err != nil {
		p.handleFailure(ctx, p.decodes, at, begun, c, r, err)
		return err
	}
	p.decodes.activities[at].recordActivity()
	broken := res.StatusCode >= http.StatusInternalServerError
	if !broken {
		p.decodes.onAnswer(at, begun, false)
	}
	if received, err := p.passAnswer(w, c, res, at); err != nil {
		p.handleFailure(ctx, p.decodes, at, begun, c, r, err)
		if received == receivedNothing {
			return err
		}
		p.breakOff(ctx, w, res, received, err)
	}
	if broken {
		p.handleFailure(ctx, p.decodes, at, begun, c, r, statusError(res.StatusCode))
	} else {
		p.decodes.onAnswer(at, begun, true)
	}
	return nil
}

// isCanceled reports whether the client is gone or the proxy stops.
func isCanceled(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) }

// sendToDecode sends a request to a decode engine. If the engine reports an error with the cache, the request is sent
// once more without the cache.
func (p *Proxy) sendToDecode(
	ctx context.Context, c call, r request, at int, params json.RawMessage,
) (*http.Response, error) {
	for {
		res, err := p.sendToEngine(ctx, http.MethodPost, p.decodes.urls[at], c, r.decodeBody(params))
		if err != nil || params == nil || res.StatusCode < http.StatusInternalServerError {
			return res, err
		}
		_ = res.Body.Close()
		p.log.Warn("a decode engine fails with a cache: the request is repeated without the cache", p.decodes.urls[at].String(),
			"status", res.StatusCode)
		params = nil
	}
}

func isDialError(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

const noFileText = "the proxy has no file or port left for a connection to an engine: try again, raise the limit of open " +
	"files (ulimit -n, LimitNOFILE), or lower --connections and --requests"

const noDecodeText = "no decode engine answers; see GET /health and the log of the proxy"

// failRequest answers a request that no engine has answered.
func (p *Proxy) failRequest(ctx context.Context, w http.ResponseWriter, err error) {
	if isCanceled(ctx) {
		p.abortDisconnected()
	}
	p.stats.failed.Add(1)
	if ctx.Err() != nil {
		p.refuseRequest(w, http.StatusGatewayTimeout, p.timeoutText())
		return
	}
	p.log.Warn("a decode engine does not answer", "", "err", err, "remedy", remedyOf(p.decodes.kind, err))
	if isLocalShortage(err) {
		p.refuseRequest(w, http.StatusServiceUnavailable, noFileText)
		return
	}
	p.refuseRequest(w, http.StatusBadGateway, noDecodeText)
}

func (p *Proxy) timeoutText() string {
	return fmt.Sprintf("the request was not answered within %v (--timeout): raise the timeout, or request a shorter answer", p.config.Timeout)
}

// abortDisconnected ends a request after the client has disconnected.
func (p *Proxy) abortDisconnected() {
	p.stats.abandoned.Add(1)
	panic(http.ErrAbortHandler)
}

// breakOff tells a client that the answer is incomplete: a stream gets an error event like vLLM's, and every answer
// lacks the end. If the answer stopped in the middle of an event, no error event is sent, because the client would read
// it as a part of that event.
func (p *Proxy) breakOff(ctx context.Context, w http.ResponseWriter, res *http.Response, received progress, err error) {
	if isCanceled(ctx) {
		p.abortDisconnected()
	}
	p.stats.failed.Add(1)
	asked := res.Request
	p.log.Warn("an engine's answer breaks off", asked.URL.Host, "request", asked.Header.Get(idHeader), "err", err)
	status, message := http.StatusBadGateway, "the decode engine broke off: the answer is incomplete"
	if ctx.Err() != nil {
		status, message = http.StatusGatewayTimeout, p.timeoutText()
	}
	if received == receivedEvents && strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		rc := p.extendDeadline(w)
		text, _ := json.Marshal(errorBody(status, message)) // marshalling never fails
		_, _ = fmt.Fprintf(w, "data: %s\n\n", text)
		_ = rc.Flush()
	}
	panic(http.ErrAbortHandler)
}

// hopHeaders are headers of a connection, which are not passed on. The header Connection names further headers of this
// kind.
var hopHeaders = map[string]bool{"Connection": true, "Keep-Alive": true, "Transfer-Encoding": true, "Trailer": true,
	"Upgrade": true, "Proxy-Connection": true, "Te": true}

// extendDeadline starts the time in which a client has to read the next piece of the answer.
func (p *Proxy) extendDeadline(w http.ResponseWriter) *http.ResponseController {
	rc := http.NewResponseController(w)
	_ = rc.SetWriteDeadline(time.Now().Add(p.config.WriteTimeout))
	return rc
}

// progress says how much of an answer a client has received.
type progress int

const (
	receivedNothing progress = iota // not even a status, so that an error status may be sent
	receivedEvents                  // whole events, if the answer is a stream of events
	receivedPart
)

// minClientRate is the number of bytes per second that a client has to read while more of the answer waits. A slower
// client is cut off when the answer has been held up for Config.WriteTimeout in total, because the request occupies a
// slot of the requests in flight.
const minClientRate = 4 << 10

// An answerWriter writes an answer to a client and measures how long the client holds up the answer.
type answerWriter struct {
	w         http.ResponseWriter
	rc        *http.ResponseController
	limit     time.Duration // longest time for which the client may hold up the answer
	rate      int64         // bytes per second
	remaining time.Duration // part of limit that remains; bytes that were read earn more
}

// writePiece sends the client a piece at once.
func (t *answerWriter) writePiece(piece []byte) error {
	begun := time.Now()
	_ = t.rc.SetWriteDeadline(begun.Add(t.remaining))
	_, err := t.w.Write(piece)
	if err == nil {
		err = t.rc.Flush()
	}
	earned := time.Duration(int64(len(piece)) * int64(time.Second) / t.rate)
	t.remaining = max(0, min(t.limit, t.remaining-time.Since(begun)+earned))
	return err
}

// passAnswer copies the answer of a decode engine to the client, each piece as soon as possible. If the engine breaks
// off, the results are the error and the part that the client has received by then.
func (p *Proxy) passAnswer(w http.ResponseWriter, c call, res *http.Response, at int) (received progress, err error) {
	defer func() { _ = res.Body.Close() }()
	for _, names := range res.Header["Connection"] {
		for name := range strings.SplitSeq(names, ",") {
			res.Header.Del(strings.TrimSpace(name))
		}
	}
	t := answerWriter{w: w, rc: p.extendDeadline(w), limit: p.config.WriteTimeout, rate: p.minClientRate,
		remaining: p.config.WriteTimeout}
	begin := func() {
		p.metrics.firstPieceTime.observeTime(c.path, time.Since(c.begun))
		for name, values := range res.Header {
			if !hopHeaders[name] {
				w.Header()[name] = values
			}
		}
		w.WriteHeader(res.StatusCode)
	}
	piece := make([]byte, 16<<10)
	var tail []byte
	for {
		n, err := res.Body.Read(piece)
		if n > 0 {
			p.decodes.activities[at].recordActivity()
			if received == receivedNothing {
				begin()
			}
			if err := t.writePiece(piece[:n]); err != nil {
				p.abortDisconnected()
			}
			tail = append(tail, piece[max(0, n-2):n]...)
			tail = tail[max(0, len(tail)-2):]
			if received = receivedPart; string(tail) == "\n\n" {
				received = receivedEvents
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			p.extendDeadline(w) // for the end of the answer: the last piece may be long ago
			if received == receivedNothing {
				begin()
			}
			return received, nil
		case err != nil:
			return received, err
		}
	}
}

// refuseRequest answers with an error.
func (p *Proxy) refuseRequest(w http.ResponseWriter, status int, message string) {
	p.extendDeadline(w)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(errorBody(status, message))
}

// errorBody returns an error in OpenAI's format.
func errorBody(status int, message string) map[string]any {
	kind := "invalid_request_error"
	if status >= http.StatusInternalServerError {
		kind = "server_error"
	}
	return map[string]any{"error": map[string]any{"message": message, "type": kind, "param": nil, "code": status}}
}
