package proxy

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"
)

func dial(t *testing.T, p *Proxy) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(testTimeout))
	return conn
}

// sendText sends text over a new connection.
func sendText(t *testing.T, p *Proxy, text string) net.Conn {
	t.Helper()
	conn := dial(t, p)
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	return conn
}

// requestHead is the beginning of a request.
const requestHead = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"

// shortRequest is a complete request of a client that may not read the answer.
const shortRequest = requestHead + "Content-Length: 15\r\n\r\n" + `{"prompt": "x"}`

// awaitClose waits until the proxy closes the connection.
func awaitClose(t *testing.T, conn net.Conn) {
	t.Helper()
	_, err := io.Copy(io.Discard, conn)
	var n net.Error
	if errors.As(err, &n) && n.Timeout() {
		t.Error("the connection stays")
	}
}

// A body that is too long never reaches an engine, whether the length is announced or not.
func TestLongBody(t *testing.T) {
	decode := newEngine(t, answerText("answer"))
	p := startProxy(t, Config{Decodes: []DecodeEngine{decode.asDecode("h")}}, func(c *Config) { c.MaxBodyBytes, c.MaxTotalBytes = 1000, 1000 })
	long := `{"prompt": "` + strings.Repeat("x", 1000) + `"}`
	wantAnswer(t, postTo(t, p, "/v1/completions", long), http.StatusRequestEntityTooLarge, "1000")
	res, err := newClient(t).Post("http://"+p.Addr().String()+"/v1/completions", jsonType,
		io.MultiReader(strings.NewReader(long)))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	wantAnswer(t, res, http.StatusRequestEntityTooLarge, "1000")
	wantAnswer(t, postTo(t, p, "/v1/completions", "[]"), http.StatusBadRequest, "not a JSON object")
	wantAnswer(t, postTo(t, p, "/v1/completions", `{"prompt": "x"}`), http.StatusOK, "answer") // The room is given back.
	if got := len(decode.allReceived()); got != 1 {
		t.Errorf("the engine was asked %d times", got)
	}
}

// Beyond the bound of requests, or of their bytes, clients are told to retry.
func TestNoRoom(t *testing.T) {
	for name, limit := range map[string]func(*Config){
		"requests": func(c *Config) { c.MaxRequests = 1 },
		"bytes":    func(c *Config) { c.MaxBodyBytes, c.MaxTotalBytes = 200, 200 },
	} {
		t.Run(name, func(t *testing.T) {
			came, end := make(chan struct{}), make(chan struct{})
			decode := newEngine(t, func(w http.ResponseWriter, _ *http.Request) {
				came <- struct{}{}
				<-end
				_, _ = io.WriteString(w, "answer")
			})
			p := startProxy(t, Config{Decodes: []DecodeEngine{decode.asDecode("h")}}, limit)
			client, first := newClient(t), make(chan error, 1)
			ask := func() error {
				res, err := client.Post("http://"+p.Addr().String()+"/v1/completions", jsonType, strings.NewReader(completion))
				if err == nil {
					_, err = io.Copy(io.Discard, res.Body)
					_ = res.Body.Close()
				}
				return err
			}
			go func() { first <- ask() }()
			<-came
			res := postTo(t, p, "/v1/completions", completion)
			wantAnswer(t, res, http.StatusServiceUnavailable, "try again")
			if res.Header.Get("Retry-After") == "" {
				t.Error("it does not say when")
			}
			close(end)
			if err := <-first; err != nil {
				t.Error(err)
			}
			for begun := time.Now(); p.slots.inUse() > 0; runtime.Gosched() { // The client gets the answer a little earlier.
				if time.Since(begun) > testTimeout {
					t.Fatal("the room is not given back")
				}
			}
			go func() { <-came }()
			wantAnswer(t, postTo(t, p, "/v1/completions", completion), http.StatusOK, "answer")
			if got := p.Stats().Refused; got != 1 {
				t.Errorf("%d were refused", got)
			}
		})
	}
}

// A client that sends headers or a body too slowly is cut off.
func TestSlowClients(t *testing.T) {
	decode := newEngine(t, answerText("answer"))
	p := startProxy(t, Config{Decodes: []DecodeEngine{decode.asDecode("h")}}, func(c *Config) { c.ReadTimeout = 50 * time.Millisecond })
	for _, text := range []string{"", requestHead + "X-Slow: ",
		requestHead + "Content-Length: 100\r\n\r\n{\"prompt\""} {
		conn := sendText(t, p, text)
		if strings.Contains(text, "100") {
			// On a machine that is slow the headers are late, too, and there is no answer.
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err == nil && res.StatusCode != http.StatusRequestTimeout {
				t.Errorf("got %v", res.Status)
			}
		}
		awaitClose(t, conn)
	}
	if got := len(decode.allReceived()); got != 0 {
		t.Errorf("the engine was asked %d times", got)
	}
}

// Bodies that do not arrive occupy nothing, however long the announced length is.
func TestSlowBodiesOccupyNothing(t *testing.T) {
	for name, limit := range map[string]func(*Config){
		"requests":    func(c *Config) { c.MaxRequests = 1 },
		"bytes":       func(c *Config) { c.MaxBodyBytes, c.MaxTotalBytes = 500, 500 },
		"connections": func(c *Config) { c.MaxConnections = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			decode := newEngine(t, answerText("answer"))
			p := startProxy(t, Config{Decodes: []DecodeEngine{decode.asDecode("h")}}, limit)
			sendText(t, p, requestHead+"Content-Length: 500\r\n\r\n{")
			for begun := time.Now(); p.bodies.inUse() == 0; runtime.Gosched() { // The body is being read.
				if time.Since(begun) > testTimeout {
					t.Fatal("the body is not read")
				}
			}
			wantAnswer(t, postTo(t, p, "/v1/completions", completion), http.StatusOK, "answer")
		})
	}
}

func TestLongHeaders(t *testing.T) {
	decode := newEngine(t, answerText("answer"))
	p := startProxy(t, Config{Decodes: []DecodeEngine{decode.asDecode("h")}})
	conn := dial(t, p)
	go func() {
		_, _ = io.WriteString(conn, "GET /health HTTP/1.1\r\nHost: x\r\n")
		line := []byte("X-Long: " + strings.Repeat("x", 1000) + "\r\n")
		_, _ = conn.Write(bytes.Repeat(line, 2*headerBytes/len(line)))
	}()
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err == nil && res.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("got %v", res.Status)
	}
}

// Silent connections give way to connections that send requests.
func TestManyConnections(t *testing.T) {
	decode := newEngine(t, answerText("answer"))
	p := startProxy(t, Config{Decodes: []DecodeEngine{decode.asDecode("h")}}, func(c *Config) { c.MaxConnections = 4 })
	var silent []net.Conn
	for range 8 {
		silent = append(silent, dial(t, p))
	}
	for range 3 {
		wantAnswer(t, postTo(t, p, "/v1/completions", completion), http.StatusOK, "answer")
	}
	awaitClose(t, silent[0])
}

// If a client disconnects or does not read, the request at the engine is canceled.
func TestClientThatIsGone(t *testing.T) {
	for _, reads := range []bool{true, false} {
		came, gone := make(chan struct{}), make(chan struct{})
		decode := newEngine(t, func(w http.ResponseWriter, r *http.Request) {
			close(came)
			defer close(gone)
			piece := make([]byte, 1<<20)
			for r.Context().Err() == nil && !reads {
				if _, err := w.Write(piece); err != nil {
					return
				}
			}
			<-r.Context().Done()
		})
		p := startProxy(t, Config{Decodes: []DecodeEngine{decode.asDecode("h")}}, func(c *Config) {
			if !reads {
				c.WriteTimeout = 50 * time.Millisecond
			}
		})
		conn := sendText(t, p, shortRequest)
		<-came
		if reads {
			_ = conn.Close()
		}
		select {
		case <-gone:
		case <-time.After(testTimeout):
			t.Fatalf("a client that reads: %v; its request goes on", reads)
		}
	}
}

// Request names that are malformed are replaced.
func TestIdentify(t *testing.T) {
	for given, kept := range map[string]bool{"a-1": true, "": false, strings.Repeat("x", 96): true,
		strings.Repeat("x", 97): false, "a b": false, "\x01": false, "é": false} {
		r := &http.Request{Header: http.Header{idHeader: {given}}}
		if got := requestID(r); (got == given) != kept || len(got) == 0 {
			t.Errorf("%q becomes %q", given, got)
		}
	}
	if first := requestID(&http.Request{}); first == requestID(&http.Request{}) {
		t.Error("two requests have one name")
	}
}

// A body is in memory once, however often it is sent, so that clients that use up the limit do not take a multiple of
// the limit.
func TestBodiesAreNotCopied(t *testing.T) {
	body := []byte(`{"prompt": "` + strings.Repeat("x", 8<<20) + `", "n": 1}`)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r, err := parseRequest(body, completions)
	if err != nil || r.uncachedField() != "" {
		t.Fatal(err)
	}
	first, err := r.prefillBody("r", DecodeEngine{Host: "h", InitPorts: []uint16{1}, AllocPorts: []uint16{2}})
	second := r.decodeBody(json.RawMessage(`{}`))
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; err != nil || got > 1<<20 {
		t.Errorf("a body of %d bytes takes %d more, %v", len(body), got, err)
	}
	if first.totalBytes() < 8<<20 || second.totalBytes() < 8<<20 {
		t.Errorf("%d and %d bytes are sent", first.totalBytes(), second.totalBytes())
	}
}

// Clients that wait for the health of hanging engines give way to further clients.
func TestWaitingForHealthGivesWay(t *testing.T) {
	came, end := make(chan struct{}), make(chan struct{})
	defer close(end)
	decode := newEngine(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/health" {
			close(came)
			<-end
		}
	})
	p := startProxy(t, Config{Decodes: []DecodeEngine{decode.asDecode("h")}}, func(c *Config) { c.MaxConnections = 1 })
	p.healthWait = testTimeout
	sendText(t, p, "GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
	<-came
	wantAnswer(t, postTo(t, p, "/v1/completions", completion), http.StatusOK, "")
}

// Requests for the models of a hanging engine occupy slots of requests and nothing else, and the next engine is asked.
func TestModelsOccupySlots(t *testing.T) {
	came := make(chan string, 1)
	decode := newEngine(t, hang(came))
	p := startProxy(t, Config{Decodes: []DecodeEngine{decode.asDecode("h")}}, func(c *Config) { c.MaxRequests = 1 })
	sendText(t, p, "GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")
	<-came
	wantAnswer(t, postTo(t, p, "/v1/completions", completion), http.StatusServiceUnavailable, "--requests")
}
