package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"
)

// The prefill engine gets a request for one token with the decode engine's agents. The decode engine gets the client's
// request with the prefill engine's kv_transfer_params.
func TestPromptIsComputedByPrefill(t *testing.T) {
	for _, path := range []string{"/v1/completions", "/v1/chat/completions"} {
		prefill, decode := newEngine(t, answerText(sentAnswer)), newEngine(t, answerText("data: answer\n\n"))
		p := startProxy(t, pairConfig(prefill, decode))
		res := postTo(t, p, path, completion, idHeader, "client-7", "Authorization", "Bearer x", "X-Other", "y")
		wantAnswer(t, res, http.StatusOK, "data: answer")
		if got := res.Header.Get(idHeader); got != "client-7" {
			t.Errorf("the answer is called %q", got)
		}
		first, second := prefill.allReceived(), decode.allReceived()
		if len(first) != 1 || len(second) != 1 {
			t.Fatalf("prefill was asked %d times, decode %d times", len(first), len(second))
		}
		name := checkPrefillRequest(t, first[0], path)
		if !strings.HasPrefix(name, "client-7-") || len(name) < len("client-7-")+16 {
			t.Errorf("the cache is called %q", name)
		}
		checkDecodeRequest(t, second[0], path)
		if got := p.Stats(); got != (Stats{Requests: 1, Sent: 1}) {
			t.Errorf("counted %+v", got)
		}
	}
}

func checkPrefillRequest(t *testing.T, a received, path string) (name string) {
	t.Helper()
	params, _ := a.body["kv_transfer_params"].(map[string]any)
	spec, _ := params["disagg_spec"].(map[string]any)
	name, _ = spec["req_id"].(string)
	delete(spec, "req_id")
	want := map[string]any{"model": "m", "prompt": "Once", "max_tokens": 1.0, "stream": false,
		"kv_transfer_params": map[string]any{"do_remote_decode": true, "do_remote_prefill": false,
			"disagg_spec": map[string]any{"receiver_host": "10.0.0.2", "receiver_init_port": []any{7300.0, 7301.0},
				"receiver_alloc_port": []any{7400.0, 7401.0}}}}
	if strings.Contains(path, "chat") {
		delete(a.body, "prompt")
		delete(want, "prompt")
		want["max_completion_tokens"] = 1.0
	}
	if !reflect.DeepEqual(a.body, want) || a.path != path {
		t.Errorf("prefill was asked %s\n%v, want\n%v", a.path, a.body, want)
	}
	checkHeaders(t, a)
	return name
}

func checkDecodeRequest(t *testing.T, a received, path string) {
	t.Helper()
	want := map[string]any{"model": "m", "prompt": "Once", "max_tokens": 9.0, "min_tokens": 3.0, "stream": true,
		"stream_options": map[string]any{"include_usage": true}, "logprobs": 2.0,
		"kv_transfer_params": map[string]any{"do_remote_prefill": true, "remote_tokens": 4.0,
			"disagg_spec": map[string]any{"req_id": "as the engine has it"}}}
	if !reflect.DeepEqual(a.body, want) || a.path != path {
		t.Errorf("decode was asked %s\n%v, want\n%v", a.path, a.body, want)
	}
	checkHeaders(t, a)
}

func checkHeaders(t *testing.T, a received) {
	t.Helper()
	if a.header.Get(idHeader) != "client-7" || a.header.Get("Authorization") != "Bearer x" ||
		a.header.Get("X-Other") != "" {
		t.Errorf("an engine got %v", a.header)
	}
}

// A missing cache is no error: the decode engine computes the prompt.
func TestPrefillThatFails(t *testing.T) {
	for name, prefill := range map[string]http.HandlerFunc{
		"an error":         answerStatus(http.StatusInternalServerError),
		"a refusal":        answerStatus(http.StatusBadRequest),
		"no JSON":          answerText("<html>"),
		"no parameters":    answerText(`{"choices": []}`),
		"null":             answerText(`{"kv_transfer_params": null}`),
		"other parameters": answerText(`{"kv_transfer_params": ["x"]}`),
		"a cut":            func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"silence":          func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"too much": func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"kv_transfer_params": {"x": %q}}`, strings.Repeat("x", answerBytesMax))
		},
	} {
		t.Run(name, func(t *testing.T) {
			decode := newEngine(t, answerText("answer"))
			p := startProxy(t, pairConfig(newEngine(t, prefill), decode), func(c *Config) {
				if name == "silence" {
					c.PrefillTimeout = 20 * time.Millisecond
				}
			})
			wantAnswer(t, postTo(t, p, "/v1/completions", completion), http.StatusOK, "answer")
			checkComputed(t, p, decode)
		})
	}
}

func TestNoPrefill(t *testing.T) {
	gone, decode := newEngine(t, answerText(sentAnswer)), newEngine(t, answerText("answer"))
	gone.Close()
	p := startProxy(t, pairConfig(gone, decode))
	wantAnswer(t, postTo(t, p, "/v1/completions", completion), http.StatusOK, "answer")
	checkComputed(t, p, decode)
	without := startProxy(t, Config{Decodes: []DecodeEngine{decode.asDecode("10.0.0.2")}})
	wantAnswer(t, postTo(t, without, "/v1/completions", completion), http.StatusOK, "answer")
}

func checkComputed(t *testing.T, p *Proxy, decode *engine) {
	t.Helper()
	if got := p.Stats(); got != (Stats{Requests: 1, Computed: 1}) {
		t.Errorf("counted %+v", got)
	}
	all := decode.allReceived()
	if len(all) != 1 || all[0].body["kv_transfer_params"] != nil || all[0].body["max_tokens"] != 9.0 {
		t.Errorf("decode was asked %v", all)
	}
}

// A prefill engine that failed and is not healthy is left out for Config.RestTime and then gets requests again.
func TestPrefillRests(t *testing.T) {
	for _, rest := range []time.Duration{time.Hour, 0} {
		prefill, decode := newEngine(t, answerStatus(http.StatusServiceUnavailable)), newEngine(t, answerText("answer"))
		p := startProxy(t, pairConfig(prefill, decode), func(c *Config) { c.RestTime = rest })
		for i := range 3 {
			wantAnswer(t, postTo(t, p, "/v1/completions", completion), http.StatusOK, "answer")
			if rest > 0 {
				awaitCondition(t, "it does not rest", func() bool { return p.prefills.isResting(0) })
			} else {
				awaitCondition(t, "it is not judged", func() bool { return p.failuresChecked.Load() == uint64(i+1) })
			}
		}
		if got := prefill.countCompletions(); got != 1 && rest > 0 || got != 3 && rest == 0 {
			t.Errorf("with a rest of %v it was asked %d times", rest, got)
		}
	}
}

// Engines take turns, and each cache goes to the agents of the engine that will answer.
func TestEnginesTakeTurns(t *testing.T) {
	var c Config
	var prefills, decodes []*engine
	for i := range 2 {
		prefills, decodes = append(prefills, newEngine(t, answerText(sentAnswer))), append(decodes, newEngine(t, answerText("answer")))
		c.Prefills = append(c.Prefills, prefills[i].url)
		c.Decodes = append(c.Decodes, decodes[i].asDecode(fmt.Sprintf("10.0.0.%d", i)))
	}
	p := startProxy(t, c)
	for range 4 {
		wantAnswer(t, postTo(t, p, "/v1/completions", completion), http.StatusOK, "answer")
	}
	for i, e := range prefills {
		if len(e.allReceived()) != 2 || len(decodes[i].allReceived()) != 2 {
			t.Errorf("prefill %d was asked %d times, decode %d", i, len(e.allReceived()), len(decodes[i].allReceived()))
		}
		for _, a := range e.allReceived() {
			spec := a.body["kv_transfer_params"].(map[string]any)["disagg_spec"].(map[string]any)
			if spec["receiver_host"] != fmt.Sprintf("10.0.0.%d", i) {
				t.Errorf("prefill %d sends to %v", i, spec)
			}
		}
	}
}

// The client receives the beginning of an answer before the rest exists.
func TestAnswerIsStreamed(t *testing.T) {
	more := make(chan struct{})
	decode := newEngine(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: one\n")
		_ = http.NewResponseController(w).Flush()
		<-more
		_, _ = io.WriteString(w, "data: two\n")
	})
	p := startProxy(t, pairConfig(newEngine(t, answerText(sentAnswer)), decode))
	res := postTo(t, p, "/v1/completions", completion)
	lines := bufio.NewScanner(res.Body)
	for _, line := range []string{"data: one", "data: two"} {
		if !lines.Scan() || lines.Text() != line {
			t.Fatalf("got %q, %v, want %q", lines.Text(), lines.Err(), line)
		}
		if line == "data: one" {
			close(more)
		}
	}
	if got := res.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Errorf("it is %q", got)
	}
}

// An answer that breaks off is not passed off as complete.
func TestDecodeThatDies(t *testing.T) {
	decode := newEngine(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "data: one\n")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	p := startProxy(t, pairConfig(newEngine(t, answerText(sentAnswer)), decode))
	if text, err := io.ReadAll(postTo(t, p, "/v1/completions", completion).Body); err == nil {
		t.Errorf("the answer is %q, and whole", text)
	}
	if got := p.Stats().Failed; got != 1 {
		t.Errorf("%d failed", got)
	}
}

// A decode engine that cannot be reached is skipped, and the next engine computes. An engine that has received the
// request is not skipped.
func TestDecodeThatIsGone(t *testing.T) {
	gone, other, prefill := newEngine(t, answerText("no")), newEngine(t, answerText("other")), newEngine(t, answerText(sentAnswer))
	gone.Close()
	c := Config{Prefills: []*url.URL{prefill.url}, Decodes: []DecodeEngine{gone.asDecode("10.0.0.2"), other.asDecode("10.0.0.3")}}
	p := startProxy(t, c)
	wantAnswer(t, postTo(t, p, "/v1/completions", completion), http.StatusOK, "other")
	if got := other.allReceived(); len(got) != 1 || got[0].body["kv_transfer_params"] != nil {
		t.Errorf("the other one was asked %v", got)
	}
	alone := startProxy(t, Config{Decodes: c.Decodes[:1]})
	wantAnswer(t, postTo(t, alone, "/v1/completions", completion), http.StatusBadGateway, "server_error")
	if got := alone.Stats().Failed; got != 1 {
		t.Errorf("%d failed", got)
	}

	cut := newEngine(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	after := newEngine(t, answerText("other"))
	p = startProxy(t, Config{Decodes: []DecodeEngine{cut.asDecode("10.0.0.2"), after.asDecode("10.0.0.3")}})
	wantAnswer(t, postTo(t, p, "/v1/completions", completion), http.StatusBadGateway, "no decode engine answers")
	if got := after.allReceived(); len(got) != 0 {
		t.Errorf("another engine was asked what ended the first: %v", got)
	}
}

// A decode engine that fails with a cache is asked to compute.
func TestDecodeThatFailsWithACache(t *testing.T) {
	var decode *engine
	decode = newEngine(t, func(w http.ResponseWriter, _ *http.Request) {
		if all := decode.allReceived(); all[len(all)-1].body["kv_transfer_params"] != nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		_, _ = io.WriteString(w, "answer")
	})
	p := startProxy(t, pairConfig(newEngine(t, answerText(sentAnswer)), decode))
	wantAnswer(t, postTo(t, p, "/v1/completions", completion), http.StatusOK, "answer")
	always := newEngine(t, answerStatus(http.StatusInternalServerError))
	p = startProxy(t, pairConfig(newEngine(t, answerText(sentAnswer)), always))
	wantAnswer(t, postTo(t, p, "/v1/completions", completion), http.StatusInternalServerError, "")
	if got := always.countCompletions(); got != 2 {
		t.Errorf("it was asked %d times, want twice", got)
	}
}

func TestHealthAndModels(t *testing.T) {
	prefill, decode := newEngine(t, answerText("")), newEngine(t, answerText(`{"data": ["m"]}`))
	get := func(p *Proxy, path string) *http.Response {
		res, err := newClient(t).Get("http://" + p.Addr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = res.Body.Close() })
		return res
	}
	p := startProxy(t, pairConfig(prefill, decode))
	const all = `{"prefills":{"up":1,"of":1},"decodes":{"up":1,"of":1}}`
	wantAnswer(t, get(p, "/health"), http.StatusOK, all)
	for i, since := range []time.Duration{-time.Hour, healthTTL} { // The last result is recent, then too old.
		p.lastHealth.mu.Lock()
		p.lastHealth.checkedAt = time.Now().Add(-since)
		p.lastHealth.mu.Unlock()
		wantAnswer(t, get(p, "/health"), http.StatusOK, all)
		if n := len(decode.allReceived()); n != 1+i {
			t.Errorf("the engine was asked %d times, want %d", n, 1+i)
		}
	}
	wantAnswer(t, get(p, "/v1/models"), http.StatusOK, `"m"`)
	wantAnswer(t, get(p, "/elsewhere"), http.StatusNotFound, "GET /health")
	prefill.Close()
	wantAnswer(t, get(startProxy(t, pairConfig(prefill, decode)), "/health"), http.StatusOK, `"prefills":{"up":0`)
	ill := newEngine(t, answerStatus(http.StatusServiceUnavailable))
	wantAnswer(t, get(startProxy(t, pairConfig(prefill, ill)), "/health"), http.StatusServiceUnavailable, `"decodes":{"up":0`)
}

// Close lets requests in flight end, accepts no new requests, and aborts the rest when the context ends.
func TestClose(t *testing.T) {
	for _, ends := range []bool{true, false} {
		came, end := make(chan struct{}), make(chan struct{})
		decode := newEngine(t, func(w http.ResponseWriter, r *http.Request) {
			close(came)
			select {
			case <-end:
				_, _ = io.WriteString(w, "answer")
			case <-r.Context().Done():
			}
		})
		p := startProxy(t, Config{Decodes: []DecodeEngine{decode.asDecode("10.0.0.2")}})
		client, said := newClient(t), make(chan string, 1)
		go func() {
			res, err := client.Post("http://"+p.Addr().String()+"/v1/completions", jsonType, strings.NewReader(completion))
			if err != nil {
				said <- "failed"
				return
			}
			defer res.Body.Close()
			text, _ := io.ReadAll(res.Body)
			said <- string(text)
		}()
		<-came
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		closed := make(chan error, 1)
		if !ends {
			cancel()
		}
		go func() { closed <- p.Close(ctx) }()
		if ends {
			close(end)
		}
		text, err := <-said, <-closed
		if ends && (text != "answer" || err != nil) || !ends && (text != "failed" || err == nil) {
			t.Errorf("a request that may end: %v; got %q, and %v", ends, text, err)
		}
		cancel()
		if _, err := client.Get("http://" + p.Addr().String() + "/health"); err == nil {
			t.Error("a closed proxy answers")
		}
	}
}
