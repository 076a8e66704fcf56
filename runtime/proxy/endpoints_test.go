package proxy

import (
	"bufio"
	"io"
	"net/http"
	"reflect"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/kvferry/kvferry/runtime/buildinfo"
)

// At each endpoint for generated text a prefill engine computes the prompt, and is asked for as little text as
// possible.
func TestAPIs(t *testing.T) {
	for path, c := range map[string]struct{ body, prefill string }{
		"/v1/completions": {`"prompt": "x", "max_tokens": 7`, `{"max_tokens":1,"prompt":"x","stream":false}`},
		"/v1/chat/completions": {`"messages": [], "max_completion_tokens": 7`,
			`{"max_completion_tokens":1,"max_tokens":1,"messages":[],"stream":false}`},
		"/v1/responses": {`"input": "x", "max_output_tokens": 7, "include": ["message.output_text.logprobs"], "store": true`,
			`{"input":"x","max_output_tokens":1,"store":false,"stream":false}`},
		"/v1/messages": {`"messages": [], "system": "s", "max_tokens": 7`,
			`{"max_tokens":1,"messages":[],"stream":false,"system":"s"}`},
	} {
		prefill, decode := newEngine(t, answerText(sentAnswer)), newEngine(t, answerText("answer"))
		p := startProxy(t, pairConfig(prefill, decode))
		wantAnswer(t, postTo(t, p, path, "{"+c.body+"}"), http.StatusOK, "answer")
		first, second := prefill.allReceived(), decode.allReceived()
		if len(first) != 1 || len(second) != 1 || first[0].path != path || second[0].path != path {
			t.Errorf("%s: prefill was asked %v, decode %v", path, first, second)
			continue
		}
		if first[0].body[paramsField] == nil || second[0].body[paramsField] == nil {
			t.Errorf("%s: no engine is told of a cache", path)
		}
		delete(first[0].body, paramsField)
		delete(second[0].body, paramsField)
		if got := parseObject(t, c.prefill); !reflect.DeepEqual(first[0].body, got) {
			t.Errorf("%s: prefill was asked %v", path, first[0].body)
		}
		if got := parseObject(t, "{"+c.body+"}"); !reflect.DeepEqual(second[0].body, got) {
			t.Errorf("%s: decode was asked %v", path, second[0].body)
		}
	}
}

// A request that needs no cache goes to a decode engine only; fields about caches are dropped there, too.
func TestWorkWithoutCache(t *testing.T) {
	prefill, gone, decode := newEngine(t, answerText(sentAnswer)), newEngine(t, answerText("")), newEngine(t, answerText(`{"count": 3}`))
	gone.Close()
	c := pairConfig(prefill, gone)
	c.Decodes = append(c.Decodes, decode.asDecode("h"))
	p := startProxy(t, c)
	for i, path := range []string{"/tokenize", "/detokenize", "/v1/messages/count_tokens"} {
		res := postTo(t, p, path, `{"model": "m", "prompt": "abc", "kv_transfer_params": {"x": 1}}`, idHeader, "mine")
		wantAnswer(t, res, http.StatusOK, `{"count": 3}`)
		asked := decode.allReceived()
		if len(asked) != i+1 || asked[i].path != path || len(asked[i].body) != 2 || asked[i].header.Get(idHeader) != "mine" ||
			res.Header.Get(idHeader) != "mine" {
			t.Errorf("%s: the engine was asked %v", path, asked)
		}
	}
	res, err := newClient(t).Get("http://" + p.Addr().String() + "/version")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	wantAnswer(t, res, http.StatusOK, `{"count": 3}`)
	if asked := decode.allReceived(); asked[len(asked)-1].path != "/version" || len(prefill.allReceived()) != 0 {
		t.Errorf("the engines were asked %v and %v", asked, prefill.allReceived())
	}
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+p.Addr().String()+"/ping", nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := newClient(t).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		wantAnswer(t, res, http.StatusOK, `"decodes":{"up":1`)
		_ = res.Body.Close()
	}
	alone := startProxy(t, Config{Decodes: c.Decodes[:1]})
	wantAnswer(t, postTo(t, alone, "/tokenize", `{"prompt": "abc"}`), http.StatusBadGateway, noDecodeText)
}

// A stored response can be read only at the engine that stored the response, so requests that refer to a stored
// response are refused.
func TestResponsesThatWereStored(t *testing.T) {
	p := startProxy(t, pairConfig(newEngine(t, answerText(sentAnswer)), newEngine(t, answerText("answer"))))
	for body, part := range map[string]string{
		`{"input": "x", "previous_response_id": "resp_1"}`: "previous_response_id",
		`{"input": "x", "background": true}`:               "background",
	} {
		wantAnswer(t, postTo(t, p, "/v1/responses", body), http.StatusBadRequest, part)
	}
	wantAnswer(t, postTo(t, p, "/v1/responses", `{"input": "x", "previous_response_id": null, "background": false}`),
		http.StatusOK, "answer")
}

// The metrics count requests, reasons for computed prompts, limits, and requests of each engine.
func TestMetrics(t *testing.T) {
	prefill, decode := newEngine(t, answerText(sentAnswer)), newEngine(t, answerText("answer"))
	p := startProxy(t, pairConfig(prefill, decode), func(c *Config) { c.RestTime = time.Hour })
	for _, body := range []string{completion, completion, `{"prompt": "x", "n": 2}`} {
		wantAnswer(t, postTo(t, p, "/v1/completions", body), http.StatusOK, "answer")
	}
	now := time.Now()
	p.prefills.onFailure(0, now, now, 0)
	awaitCondition(t, "the requests do not end", func() bool { return p.slots.inUse() == 0 })
	res, err := newClient(t).Get("http://" + p.Addr().String() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		`kvferry_proxy_requests_total 3`, `kvferry_proxy_prompts_sent_total 2`,
		`kvferry_proxy_prompts_computed_total{reason="input"} 1`, `kvferry_proxy_prompts_computed_total{reason="refused"} 0`,
		`kvferry_proxy_prompts_computed_total{reason="late"} 0`,
		`kvferry_proxy_build_info{goversion="` + runtime.Version() + `",version="` + buildinfo.Current().Version + `"} 1`,
		`kvferry_proxy_requests_limit 16`, `kvferry_proxy_requests_under_way 0`,
		`kvferry_proxy_engine_requests_total{engine="` + prefill.URL + `",kind="prefill"} 2`,
		`kvferry_proxy_engine_requests_total{engine="` + decode.URL + `",kind="decode"} 3`,
		`kvferry_proxy_engine_failures_total{engine="` + prefill.URL + `",kind="prefill"} 1`,
		`kvferry_proxy_engine_rests{engine="` + prefill.URL + `",kind="prefill"} 1`,
		`kvferry_proxy_prefill_seconds_count{path="/v1/completions"} 2`,
		`kvferry_proxy_first_piece_seconds_count{path="/v1/completions"} 3`,
	} {
		if !regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(line) + `$`).Match(text) {
			t.Errorf("%s is not among\n%s", line, linesOf(string(text), line))
		}
	}
}

// linesOf returns the lines of a metric: the metric in line.
func linesOf(text, line string) (out string) {
	name, _, _ := strings.Cut(strings.Fields(line)[0], "{")
	for l := range strings.Lines(text) {
		if strings.HasPrefix(l, name) {
			out += l
		}
	}
	return out
}

// Pages of a different origin cannot make an engine compute: neither by content types that a browser sends without a
// preflight request, nor past the headers by which a browser names the page.
func TestPagesOfOtherOrigins(t *testing.T) {
	decode := newEngine(t, answerText("answer"))
	p := startProxy(t, Config{Decodes: []DecodeEngine{decode.asDecode("h")}})
	for _, kind := range []string{"", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data",
		"application/jsonp", "text/plain; application/json"} {
		wantAnswer(t, postTo(t, p, "/v1/completions", completion, "Content-Type", kind), http.StatusUnsupportedMediaType,
			"application/json")
	}
	for _, headers := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"},
		{"Origin", "http://evil.example"}, {"Origin", "null"}} {
		wantAnswer(t, postTo(t, p, "/v1/completions", completion, headers...), http.StatusForbidden, "origin")
	}
	if got := len(decode.allReceived()); got != 0 {
		t.Errorf("the engine was asked %d times", got)
	}
	for _, headers := range [][]string{{"Content-Type", "Application/JSON; charset=utf-8"},
		{"Sec-Fetch-Site", "same-origin"}, {"Origin", "http://" + p.Addr().String()}} {
		wantAnswer(t, postTo(t, p, "/v1/completions", completion, headers...), http.StatusOK, "answer")
	}
}

// A request that is refused before its body was read is answered at once.
func TestRefusalsDoNotWaitForBodies(t *testing.T) {
	p := startProxy(t, Config{Decodes: []DecodeEngine{newEngine(t, answerText("answer")).asDecode("h")}})
	for _, begin := range []string{
		"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\n",
		"POST /v1/completions HTTP/1.1\r\nHost: x\r\nOrigin: http://evil\r\n",
		"POST /elsewhere HTTP/1.1\r\nHost: x\r\n",
	} {
		conn := sendText(t, p, begin+"Content-Length: 100\r\n\r\n{")
		if res, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || res.StatusCode/100 != 4 {
			t.Errorf("%q: got %v, %v", begin, res, err)
		}
	}
}
