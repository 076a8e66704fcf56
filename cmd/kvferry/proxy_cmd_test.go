package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// The proxy prints its address, lets one engine compute a prompt and the other answer, and stops when its context ends.
func TestProxyServes(t *testing.T) {
	engine := func(answer string) *httptest.Server {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil || !strings.Contains(string(body), "disagg_spec") {
				t.Errorf("an engine was sent %q, %v", body, err)
			}
			_, _ = io.WriteString(w, answer)
		}))
		t.Cleanup(s.Close)
		return s
	}
	prefill := engine(`{"kv_transfer_params": {"disagg_spec": {}}}`)
	decode := engine("answer")
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	out, in := io.Pipe()
	code := make(chan int, 1)
	var log strings.Builder
	go func() {
		code <- run(ctx, []string{"proxy", "--listen", "127.0.0.1:0", "--prefill", prefill.URL, "--decode",
			decode.URL + "=10.0.0.2:7300:7400"}, nil, in, &log)
		in.Close()
	}()
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatalf("it says nothing: %v; %s", lines.Err(), log.String())
	}
	var serving struct{ Address string }
	if err := json.Unmarshal(lines.Bytes(), &serving); err != nil {
		t.Fatal(err)
	}
	res, err := http.Post("http://"+serving.Address+"/v1/completions", "application/json",
		strings.NewReader(`{"prompt": "x"}`))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err != nil || string(answer) != "answer" {
		t.Errorf("got %q, %v", answer, err)
	}
	http.DefaultClient.CloseIdleConnections()
	stop()
	if got := <-code; got != 0 || !strings.Contains(log.String(), "Sent:1") {
		t.Errorf("it ends with %d: %s", got, log.String())
	}
}

func TestProxyThatCannotListen(t *testing.T) {
	var out, log strings.Builder
	args := []string{"proxy", "--listen", "nowhere", "--decode", "http://a=b:1:2"}
	if code := run(t.Context(), args, nil, &out, &log); code != 1 || !strings.Contains(log.String(), "nowhere") {
		t.Errorf("it ends with %d: %s", code, log.String())
	}
}
