package proxy

import (
	"context"
	"io"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"
)

// awaitCondition waits for what happens soon.
func awaitCondition(t *testing.T, what string, is func() bool) {
	t.Helper()
	for begun := time.Now(); !is(); runtime.Gosched() {
		if time.Since(begun) > testTimeout {
			t.Fatal(what)
		}
	}
}

func (t *roundRobin) isResting(i int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return time.Now().Before(t.engines[i].restUntil)
}

// hang answers no request, including health checks, until the client has disconnected.
func hang(came chan<- string) http.HandlerFunc {
	return func(_ http.ResponseWriter, r *http.Request) {
		select {
		case came <- r.URL.Path:
		default:
		}
		<-r.Context().Done()
	}
}

func cutOff(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

func cutOffLater(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/health" {
		cutOff(w, r)
	}
	_, _ = io.WriteString(w, "data: one\n\n")
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

// A decode engine that fails, or breaks off before or inside an answer, and is not healthy, is left out: requests go to
// further engines.
func TestDecodeRests(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"it resets": cutOff, "it breaks off": cutOffLater, "it fails, and is not well": answerStatus(http.StatusInternalServerError),
		"it answers what is no answer": func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_, _ = io.WriteString(conn, "HTTP/1.1 000 x\r\nContent-Length: 0\r\n\r\n")
				_ = conn.Close()
			}
		},
		"its header has no end": func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n")
			}
			for err == nil {
				_, err = io.WriteString(conn, "X-More: "+strings.Repeat("x", 1000)+"\r\n")
			}
			_ = conn.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			bad, good := newEngine(t, answer), newEngine(t, answerText("answer"))
			p := startProxy(t, Config{Decodes: []DecodeEngine{bad.asDecode("h"), good.asDecode("h")}}, func(c *Config) { c.RestTime = time.Hour })
			_, _ = io.Copy(io.Discard, postTo(t, p, "/v1/completions", completion).Body)
			awaitCondition(t, "it does not rest", func() bool { return p.decodes.isResting(0) })
			for range 3 {
				wantAnswer(t, postTo(t, p, "/v1/completions", completion), http.StatusOK, "answer")
			}
			if n := bad.countCompletions(); n != 1 {
				t.Errorf("it was asked %d times", n)
			}
		})
	}
}

// A decode engine that fails a request and is healthy keeps its turns: a client must not make all engines rest.
func TestHealthyDecodeThatFails(t *testing.T) {
	decode := newEngine(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/health" {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	p := startProxy(t, Config{Decodes: []DecodeEngine{decode.asDecode("h")}}, func(c *Config) { c.RestTime = time.Hour })
	wantAnswer(t, postTo(t, p, "/v1/completions", completion), http.StatusInternalServerError, "")
	if got := p.decodes.nextEngine(time.Now(), false, nil); got != 0 {
		t.Errorf("got %d: it rests", got)
	}
}

// A decode engine that hangs is left out meanwhile, and its request is not sent to another engine. An engine that
// computes long and is healthy is not left out.
func TestDecodeThatHangs(t *testing.T) {
	came := make(chan string, 2)
	bad, good := newEngine(t, hang(came)), newEngine(t, answerText("answer"))
	p := startProxy(t, Config{Decodes: []DecodeEngine{bad.asDecode("h"), good.asDecode("h")}}, func(c *Config) {
		c.SilenceTimeout, c.RestTime = time.Millisecond, time.Hour
	})
	p.healthWait = 10 * time.Millisecond
	client := newClient(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+p.Addr().String()+"/v1/completions",
			strings.NewReader(completion))
		if err == nil {
			r.Header.Set("Content-Type", jsonType)
			_, err = client.Do(r)
		}
		ended <- err
	}()
	awaitCondition(t, "it does not rest", func() bool { return p.decodes.isResting(0) })
	for range 3 {
		if got := p.decodes.nextEngine(time.Now(), false, nil); got != 1 {
			t.Errorf("the turn is of %d", got)
		}
	}
	if first, second := <-came, <-came; first == second {
		t.Errorf("it was asked %s twice", first)
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("what hangs was answered")
	}
	if got := good.countCompletions(); got != 0 {
		t.Errorf("the other one was asked %d times", got)
	}

	well := make(chan struct{}, 1)
	slow := newEngine(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/health" {
			select {
			case well <- struct{}{}:
			default:
			}
			return
		}
		<-well
		<-well // Two requests have arrived.
		_, _ = io.WriteString(w, "slow")
	})
	p = startProxy(t, Config{Decodes: []DecodeEngine{slow.asDecode("h"), good.asDecode("h")}}, func(c *Config) {
		c.SilenceTimeout, c.RestTime = time.Millisecond, time.Hour
	})
	p.healthWait = testTimeout
	wantAnswer(t, postTo(t, p, "/v1/completions", completion), http.StatusOK, "slow")
	if p.decodes.isResting(0) {
		t.Error("it rests")
	}
}

// A request that takes longer than Config.Timeout does not count against an engine that keeps sending, but counts
// against an engine that sends nothing.
func TestTimeoutOfADecode(t *testing.T) {
	for _, speaks := range []bool{true, false} {
		decode := newEngine(t, func(w http.ResponseWriter, r *http.Request) {
			if speaks {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, "data: one\n\n")
				_ = http.NewResponseController(w).Flush()
			}
			<-r.Context().Done()
		})
		p := startProxy(t, Config{Decodes: []DecodeEngine{decode.asDecode("h")}}, func(c *Config) {
			c.Timeout, c.SilenceTimeout, c.RestTime = 100*time.Millisecond, time.Hour, time.Hour
		})
		text, err := io.ReadAll(postTo(t, p, "/v1/completions", completion).Body)
		if !strings.Contains(string(text), "100ms (--timeout)") || speaks == (err == nil) {
			t.Errorf("it speaks: %v; got %q, %v", speaks, text, err)
		}
		if !speaks {
			awaitCondition(t, "it does not rest", func() bool { return p.decodes.isResting(0) })
		} else if p.decodes.isResting(0) {
			t.Error("it speaks, and rests")
		}
	}
}

// A stream that breaks off between two events ends with an error event; inside an event the stream just ends.
func TestStreamThatBreaksOff(t *testing.T) {
	for sent, told := range map[string]bool{"data: one\n\n": true, "data: on": false, "": false} {
		decode := newEngine(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
			_ = http.NewResponseController(w).Flush()
			for _, c := range []byte(sent) {
				_, _ = w.Write([]byte{c})
				_ = http.NewResponseController(w).Flush()
			}
			panic(http.ErrAbortHandler)
		})
		p := startProxy(t, Config{Decodes: []DecodeEngine{decode.asDecode("h")}})
		res := postTo(t, p, "/v1/completions", completion)
		if sent == "" { // The client has received nothing yet, so the status is an error.
			wantAnswer(t, res, http.StatusBadGateway, noDecodeText)
			continue
		}
		text, err := io.ReadAll(res.Body)
		rest := strings.TrimPrefix(string(text), sent)
		said := strings.HasPrefix(rest, `data: {"error":{"code":502`) && strings.HasSuffix(rest, "}\n\n")
		if err == nil || said != told || !said && rest != "" {
			t.Errorf("after %q the client has %q, %v", sent, text, err)
		}
	}
}

// A client that disconnects while the prompt is computed is counted as such, and the prompt counts as not computed.
func TestClientThatLeavesInPrefill(t *testing.T) {
	came := make(chan string, 1)
	decode := newEngine(t, answerText("answer"))
	p := startProxy(t, pairConfig(newEngine(t, hang(came)), decode), func(c *Config) { c.RestTime = time.Hour })
	conn := sendText(t, p, shortRequest)
	<-came
	_ = conn.Close()
	awaitCondition(t, "nobody left", func() bool { return p.Stats().Left > 0 })
	if got := p.Stats(); got != (Stats{Requests: 1, Left: 1}) || len(decode.allReceived()) != 0 {
		t.Errorf("counted %+v", got)
	}
	if got := p.prefills.nextEngine(time.Now(), false, nil); got != 0 {
		t.Error("the prefill engine rests for what its client left")
	}
}

// An engine that fails again rests longer, up to a bound. An engine that answers does not rest, and a complete answer
// clears the failures.
func TestRests(t *testing.T) {
	const rest = time.Second
	now := time.Now()
	turns := newRoundRobin(1, rest, 0)
	rests := func() time.Duration { return turns.engines[0].restUntil.Sub(now) }
	for i, pause := range []time.Duration{1, 2, 4, 8, 16, 16, 16} {
		turns.onFailure(0, now, now, 0)
		turns.onFailure(0, now.Add(-1), now.Add(rest/2), 0) // Begun before the last failure: the same failure.
		if got := rests(); got != pause*rest {
			t.Errorf("after failure %d it rests for %v", i+1, got)
		}
		if turns.nextEngine(now.Add(pause*rest-1), false, nil) != -1 {
			t.Error("it does not rest")
		}
		now = now.Add(pause * rest)
		if turns.nextEngine(now, false, nil) != 0 || turns.nextEngine(now, false, nil) != -1 {
			t.Error("when it has rested it does not get one request")
		}
	}
	turns.onAnswer(0, now.Add(-2*time.Hour), true)
	if turns.nextEngine(now, false, nil) != -1 {
		t.Error("an answer that was begun before it failed ends its rest")
	}
	turns.onAnswer(0, now, false)
	for range 2 {
		if turns.nextEngine(now, false, nil) != 0 {
			t.Error("one that answers rests")
		}
	}
	turns.onFailure(0, now, now, 0)
	if got := rests(); got != 16*rest {
		t.Errorf("answers that were not whole have failures forgotten: it rests for %v", got)
	}
	turns.onAnswer(0, now, true)
	turns.onFailure(0, now, now, 0)
	if got := rests(); got != rest {
		t.Errorf("an answer that was whole has no failure forgotten: it rests for %v", got)
	}
	turns.onFailure(0, now.Add(-1), now, time.Hour)
	if got := rests(); got != time.Hour {
		t.Errorf("one that hangs rests for %v", got)
	}
	never := newRoundRobin(1, 0, 0)
	never.onFailure(0, now, now, time.Hour)
	if never.nextEngine(now, false, nil) != 0 {
		t.Error("one that is never to rest does")
	}
}

// The trial request of an engine has time for its result. If the client disconnects, another request becomes the trial.
func TestTrial(t *testing.T) {
	now := time.Now()
	turns := newRoundRobin(1, time.Second, time.Minute)
	turns.onFailure(0, now, now, 0)
	begun := now.Add(time.Second)
	if turns.nextEngine(begun, false, nil) != 0 || turns.nextEngine(begun.Add(time.Minute-1), false, nil) != -1 {
		t.Error("a second request is to find out what a first one has not yet")
	}
	turns.abandonTrial(0, now.Add(-1), begun) // Begun before the last failure.
	if turns.nextEngine(begun, false, nil) != -1 {
		t.Error("who left had to find out nothing")
	}
	turns.abandonTrial(0, begun, begun.Add(1))
	if turns.nextEngine(begun.Add(1), false, nil) != 0 || turns.nextEngine(begun.Add(1), false, nil) != -1 {
		t.Error("nobody finds out what the one that left was to, or more than one does")
	}
}

// The error for a reached limit names the limit, its value and the flag that raises it.
func TestLimitsAreNamed(t *testing.T) {
	decode := newEngine(t, answerText("answer"))
	with := func(limit func(*Config)) *Proxy {
		return startProxy(t, Config{Decodes: []DecodeEngine{decode.asDecode("h")}}, limit)
	}
	p := with(func(c *Config) { c.MaxBodyBytes = 100 })
	wantAnswer(t, postTo(t, p, "/v1/completions", completion), http.StatusRequestEntityTooLarge, "100 bytes (--body)")
	p = with(func(c *Config) { c.MaxRequests = 1 })
	other := netip.MustParsePrefix("10.9.9.9/32")
	_ = p.slots.takeShare(other, 1)
	wantAnswer(t, postTo(t, p, "/v1/completions", completion), http.StatusServiceUnavailable,
		"requests in flight: 1 of 1 are in use (--requests 1)")
	p.slots.returnShare(other, 1)
	p = with(func(c *Config) { c.MaxBodyBytes, c.MaxTotalBytes = 1000, 1000 })
	_ = p.bodies.takeShare(other, 999)
	wantAnswer(t, postTo(t, p, "/v1/completions", completion), http.StatusServiceUnavailable,
		"bytes of bodies in flight: 999 of 1000 are in use (--bodies 1000)")
	p.bodies.returnShare(other, 999)
	conn := sendText(t, with(func(c *Config) { c.ReadTimeout = 500 * time.Millisecond }),
		requestHead+"Content-Length: 100\r\n\r\n{\"prompt\"")
	text, _ := io.ReadAll(conn)
	// On a machine that is slow the headers are late, too, and there is no answer.
	if len(text) > 0 && (!strings.Contains(string(text), " 408 ") || !strings.Contains(string(text),
		"500ms (--read-timeout)")) {
		t.Errorf("got %q", text)
	}
}
