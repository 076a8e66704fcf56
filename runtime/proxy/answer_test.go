package proxy

import (
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// A client that sends requests and reads no answers is cut off, even if no engine answers.
func TestClientThatReadsNothing(t *testing.T) {
	decode := newEngine(t, answerText("answer"))
	p := startProxy(t, Config{Decodes: []DecodeEngine{decode.asDecode("h")}}, func(c *Config) { c.WriteTimeout = 50 * time.Millisecond })
	for _, path := range []string{"/health", "/elsewhere", "//health"} {
		conn := dial(t, p)
		requests := []byte(strings.Repeat("GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n", 1000))
		var err error
		for err == nil {
			_, err = conn.Write(requests)
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: the connection stays", path)
		}
	}
}

// A response that is sent later than WriteTimeout after the request still reaches the client.
func TestLateRefusal(t *testing.T) {
	decode := newEngine(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	p := startProxy(t, Config{Decodes: []DecodeEngine{decode.asDecode("h")}}, func(c *Config) {
		c.WriteTimeout, c.Timeout = 100*time.Millisecond, 300*time.Millisecond
	})
	res, err := newClient(t).Post("http://"+p.Addr().String()+"/v1/completions", jsonType, strings.NewReader(completion))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	wantAnswer(t, res, http.StatusGatewayTimeout, "300ms (--timeout)")
}

// An answer that ends long after its last piece is complete.
func TestLateEnd(t *testing.T) {
	const short = 50 * time.Millisecond
	decode := newEngine(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "data: one\n")
		_ = http.NewResponseController(w).Flush()
		time.Sleep(2 * short) // The time for that piece is over.
	})
	p := startProxy(t, Config{Decodes: []DecodeEngine{decode.asDecode("h")}}, func(c *Config) { c.WriteTimeout = short })
	wantAnswer(t, postTo(t, p, "/v1/completions", completion), http.StatusOK, "data: one")
}

// Headers of the engine's connection are not passed on, including those that Connection names.
func TestHeadersOfAnswers(t *testing.T) {
	decode := newEngine(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "x-hop, X-Other")
		w.Header().Set("X-Hop", "1")
		w.Header().Set("X-Other", "1")
		w.Header().Set("Keep-Alive", "timeout=5")
		w.Header().Set("X-Kept", "1")
		_, _ = io.WriteString(w, `{"data": []}`)
	})
	p := startProxy(t, Config{Decodes: []DecodeEngine{decode.asDecode("h")}})
	for _, method := range []string{http.MethodHead, http.MethodGet} {
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+p.Addr().String()+"/v1/models", nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := newClient(t).Do(r)
		if err != nil {
			t.Errorf("%s: %v", method, err)
			continue
		}
		wantAnswer(t, res, http.StatusOK, "")
		_ = res.Body.Close()
		h := res.Header
		if h.Get("X-Kept") != "1" || h.Get("X-Hop") != "" || h.Get("X-Other") != "" || h.Get("Keep-Alive") != "" {
			t.Errorf("%s: got %v", method, h)
		}
	}
}

// GET /v1/models goes to any decode engine that can be reached, and does not count as a turn.
func TestModelsAreNoTurn(t *testing.T) {
	var c Config
	var decodes []*engine
	for range 3 {
		decodes = append(decodes, newEngine(t, answerText("answer")))
		c.Decodes = append(c.Decodes, decodes[len(decodes)-1].asDecode("h"))
	}
	decodes[0].Close()
	p := startProxy(t, c)
	for range 4 {
		res, err := newClient(t).Get("http://" + p.Addr().String() + "/v1/models")
		if err != nil {
			t.Fatal(err)
		}
		wantAnswer(t, res, http.StatusOK, "answer")
		_ = res.Body.Close()
		wantAnswer(t, postTo(t, p, "/v1/completions", completion), http.StatusOK, "answer")
	}
	for i, e := range decodes[1:] {
		if n := e.countCompletions(); n != 2 {
			t.Errorf("engine %d answers %d completions of 4", i+1, n)
		}
	}
}
