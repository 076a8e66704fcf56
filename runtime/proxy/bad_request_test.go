package proxy

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kvferry/kvferry/runtime/internal/logtest"
)

const badPrompt = `{"model": "m", "prompt": "bad"}`

// badFor answers requests with the prompt "bad" by a handler, and all further requests with text. The engine's health
// is good.
func badFor(e **engine, bad http.HandlerFunc, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		all := (*e).allReceived()
		if last := all[len(all)-1]; r.URL.Path != "/health" && last.body["prompt"] == "bad" {
			bad(w, r)
			return
		}
		_, _ = io.WriteString(w, text)
	}
}

// Requests of a client that fail at every engine do not make healthy engines rest.
func TestBadRequestsLeaveEnginesToOthers(t *testing.T) {
	for name, bad := range map[string]http.HandlerFunc{
		"errors":       answerStatus(http.StatusInternalServerError),
		"breaks off":   cutOff,
		"late":         func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"long answers": answerText(strings.Repeat("x", answerBytesMax+1)),
	} {
		t.Run(name, func(t *testing.T) {
			const engines = 4
			var c Config
			for range engines {
				var e *engine
				e = newEngine(t, func(w http.ResponseWriter, r *http.Request) { badFor(&e, bad, sentAnswer)(w, r) })
				c.Prefills = append(c.Prefills, e.url)
			}
			decode := newEngine(t, answerText("answer"))
			c.Decodes = []DecodeEngine{decode.asDecode("h")}
			p := startProxy(t, c, func(c *Config) {
				c.RestTime = time.Hour
				if name == "late" {
					c.PrefillTimeout = 50 * time.Millisecond
				}
			})
			p.healthWait = testTimeout
			for i := range engines {
				wantAnswer(t, postTo(t, p, "/v1/completions", badPrompt), http.StatusOK, "answer")
				awaitCondition(t, "the engine is not judged", func() bool { return p.failuresChecked.Load() == uint64(i+1) })
			}
			for i := range engines {
				if p.prefills.isResting(i) {
					t.Errorf("engine %d rests for what a client sent", i)
				}
			}
			if name == "late" {
				return // On a slow machine healthy engines are late, too.
			}
			for range 5 * engines {
				wantAnswer(t, postTo(t, p, "/v1/completions", completion), http.StatusOK, "answer")
			}
			if got := p.Stats(); got.Sent != 5*engines || got.Computed != engines {
				t.Errorf("counted %+v", got)
			}
		})
	}
}

// The same holds for decode engines: an engine that breaks off an answer and is healthy keeps its turns.
func TestHealthyDecodeThatBreaksOff(t *testing.T) {
	decode := newEngine(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/health" {
			cutOffLater(w, r)
		}
	})
	p := startProxy(t, Config{Decodes: []DecodeEngine{decode.asDecode("h")}}, func(c *Config) { c.RestTime = time.Hour })
	_, _ = io.Copy(io.Discard, postTo(t, p, "/v1/completions", completion).Body)
	awaitCondition(t, "it is not judged", func() bool { return p.failuresChecked.Load() == 1 })
	if p.decodes.isResting(0) {
		t.Error("it rests")
	}
}

// A prefill engine that hangs rests although its /health is good, as vLLM's is.
func TestHangingPrefill(t *testing.T) {
	prefill := newEngine(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/health" {
			<-r.Context().Done()
		}
	})
	p := startProxy(t, pairConfig(prefill, newEngine(t, answerText("answer"))), func(c *Config) {
		c.PrefillTimeout, c.RestTime = 20*time.Millisecond, time.Hour
	})
	p.healthWait = 100 * time.Millisecond
	wantAnswer(t, postTo(t, p, "/v1/completions", completion), http.StatusOK, "answer")
	awaitCondition(t, "it does not rest", func() bool { return p.prefills.isResting(0) })
}

// A bad request that is the trial of an engine shows that the engine is back.
func TestTrialByABadRequest(t *testing.T) {
	for _, kind := range []string{"prefill", "decode"} {
		var e *engine
		e = newEngine(t, func(w http.ResponseWriter, r *http.Request) {
			badFor(&e, answerStatus(http.StatusInternalServerError), sentAnswer)(w, r)
		})
		other := newEngine(t, answerText("answer"))
		c := pairConfig(e, other)
		if kind == "decode" {
			c = Config{Decodes: []DecodeEngine{e.asDecode("h")}}
		}
		p := startProxy(t, c, func(c *Config) { c.RestTime = time.Millisecond })
		f := p.decodes
		if kind == "prefill" {
			f = p.prefills
		}
		now := time.Now()
		f.onFailure(0, now, now, 0)
		awaitCondition(t, "it rests on", func() bool { return !f.isResting(0) })
		_, _ = io.Copy(io.Discard, postTo(t, p, "/v1/completions", badPrompt).Body)
		awaitCondition(t, kind+" is left out on", func() bool { return p.failuresChecked.Load() == 1 })
		if f.nextEngine(time.Now(), false, nil) != 0 {
			t.Errorf("the %s engine is left out", kind)
		}
	}
}

// A connection that fails because this process lacks a file says nothing about the engine.
func TestMissingFilesAreNoEngineFailure(t *testing.T) {
	for _, lack := range []error{syscall.EMFILE, syscall.EADDRNOTAVAIL} {
		p := startProxy(t, pairConfig(newEngine(t, answerText(sentAnswer)), newEngine(t, answerText("answer"))),
			func(c *Config) { c.RestTime = time.Hour })
		p.transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("socket", lack)}
		}
		wantAnswer(t, postTo(t, p, "/v1/completions", completion), http.StatusServiceUnavailable, "ulimit -n")
		if p.prefills.isResting(0) || p.decodes.isResting(0) {
			t.Errorf("%v has an engine rest", lack)
		}
		if got := p.getHealth(t.Context(), p.decodes.urls[0]); got != healthUnknown {
			t.Errorf("%v is a verdict: %d", lack, got)
		}
	}
}

// Limits of connections and requests fit into the files that the process may open, otherwise they are refused, and the
// error names the limits.
func TestFit(t *testing.T) {
	for _, x := range []struct{ limit, connections, requests, wantConnections, wantRequests int }{
		{524288, 0, 0, 4096, 2048}, {1024, 0, 0, 492, 245}, {64, 0, 0, 12, 5}, {1024, 100, 0, 100, 100},
		{1024, 900, 0, 900, 41}, {1024, 0, 300, 382, 300}, {1024, 382, 300, 382, 300},
	} {
		c := Config{MaxConnections: x.connections, MaxRequests: x.requests, Log: discardLog()}
		if err := c.fitToLimit(x.limit, 10); err != nil || c.MaxConnections != x.wantConnections || c.MaxRequests != x.wantRequests {
			t.Errorf("%+v: got %d, %d, %v", x, c.MaxConnections, c.MaxRequests, err)
		}
	}
	for _, x := range []struct {
		limit, connections, requests int
		part                         string
	}{
		{1024, 4096, 0, "connections (--connections) 4096 and requests (--requests) not given: this process may open 1024"},
		{1024, 383, 300, "(ulimit -n, LimitNOFILE) to 1025"}, {1024, 0, 500, "requests (--requests) 500"},
		{40, 0, 0, "40 files"},
	} {
		c := Config{MaxConnections: x.connections, MaxRequests: x.requests, Log: discardLog()}
		if err := c.fitToLimit(x.limit, 10); err == nil || !strings.Contains(err.Error(), x.part) {
			t.Errorf("%+v: got %v", x, err)
		}
	}
}

// A host name without an address is reported differently from an engine that does not listen.
func TestWrongNameOfAnEngine(t *testing.T) {
	gone := newEngine(t, answerText(""))
	gone.Close()
	for url, part := range map[string]string{"http://engine.invalid:1": `"engine.invalid\" in --decode`,
		gone.URL: "host and port in --decode are correct"} {
		d, err := ParseDecode(url + "=h:1:2")
		if err != nil {
			t.Fatal(err)
		}
		var log logtest.Lines
		p := startProxy(t, Config{Decodes: []DecodeEngine{d}}, func(c *Config) { c.Log = log.Logger() })
		wantAnswer(t, postTo(t, p, "/v1/completions", completion), http.StatusBadGateway, noDecodeText)
		if log.CountText("requests go to the other engines for a while") != 1 || !strings.Contains(log.String(), part) {
			t.Errorf("%s: logged %s", url, log.String())
		}
	}
}
