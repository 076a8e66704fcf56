package proxy

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kvferry/kvferry/runtime/internal/proctest"
)

func discardLog() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestShares(t *testing.T) {
	address := func(i int) netip.Prefix { return netip.MustParsePrefix(fmt.Sprintf("10.0.0.%d/32", i)) }
	s := newShares(100, 1)
	take := func(i int) (n int64) {
		for s.takeShare(address(i), 1) == nil {
			n++
		}
		return n
	}
	if first, second, third := take(1), take(2), take(3); first != 50 || second != 25 || third != 12 {
		t.Errorf("they get %d, %d and %d of 100", first, second, third)
	}
	s.returnShare(address(1), 50)
	s.returnShare(address(3), 12)
	if got := take(2); got != 25 {
		t.Errorf("it has 25 of 100, and gets %d more when it is alone", got)
	}
	s.returnShare(address(2), 50)
	if s.used != 0 || len(s.byClient) != 0 {
		t.Errorf("all was given back, and %d are in use by %d", s.used, len(s.byClient))
	}
	small := newShares(10, 8)
	if small.takeShare(address(1), 8) != nil || small.takeShare(address(1), 1) == nil || small.takeShare(address(2), 2) != nil ||
		small.takeShare(address(3), 1) == nil {
		t.Error("the floor does not hold")
	}
}

// newClientFrom returns a client of the proxy with the given address.
func newClientFrom(t *testing.T, address string) *http.Client {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	tr := &http.Transport{DialContext: dialer.DialContext}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: testTimeout}
}

func postFrom(t *testing.T, client *http.Client, p *Proxy, body string) *http.Response {
	t.Helper()
	res, err := client.Post("http://"+p.Addr().String()+"/v1/completions", jsonType, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	return res
}

// The bodies of a client leave room for the bodies of further clients.
func TestBodiesOfOneClient(t *testing.T) {
	decode := newEngine(t, answerText("answer"))
	p := startProxy(t, Config{Decodes: []DecodeEngine{decode.asDecode("h")}}, func(c *Config) { c.MaxBodyBytes, c.MaxTotalBytes = 1000, 4000 })
	refused := 0
	for i := range 32 {
		conn := sendText(t, p, requestHead+"Content-Length: 900\r\n\r\n{\"prompt\": \""+strings.Repeat("x", 500))
		held := func() bool { return p.bodies.inUse() >= int64(512*(i+1-refused)) }
		awaitCondition(t, "the body is neither taken nor refused", func() bool {
			return held() || p.Stats().Refused > uint64(refused)
		})
		if !held() {
			refused++
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			wantAnswer(t, res, http.StatusServiceUnavailable, "clients of address 127.0.0.1/32 have")
		}
	}
	if got := p.bodies.inUse(); got > 2000 || refused == 0 {
		t.Errorf("one client has %d of 4000 bytes, and %d of its bodies were refused", got, refused)
	}
	wantAnswer(t, postFrom(t, newClientFrom(t, "127.0.0.2"), p, completion), http.StatusOK, "answer")
}

// The requests of a client that reads the answers as slowly as possible leave room for requests of further clients.
func TestRequestsOfOneClient(t *testing.T) {
	came := make(chan struct{}, 16)
	decode := newEngine(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(idHeader) == "fast" {
			_, _ = io.WriteString(w, "answer")
			return
		}
		came <- struct{}{}
		<-r.Context().Done()
	})
	p := startProxy(t, Config{Decodes: []DecodeEngine{decode.asDecode("h")}}, func(c *Config) { c.MaxRequests = 8 })
	for range 4 {
		sendText(t, p, shortRequest)
		<-came
	}
	wantAnswer(t, postTo(t, p, "/v1/completions", completion), http.StatusServiceUnavailable,
		"clients of address 127.0.0.1/32 have 4 of 8")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+p.Addr().String()+"/v1/completions",
		strings.NewReader(completion))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", jsonType)
	r.Header.Set(idHeader, "fast")
	res, err := newClientFrom(t, "127.0.0.2").Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	wantAnswer(t, res, http.StatusOK, "answer")
}

// A client that reads each piece of the answer in time, but all of the answer too slowly, is cut off.
func TestSlowReader(t *testing.T) {
	gone := make(chan struct{})
	decode := newEngine(t, func(w http.ResponseWriter, r *http.Request) {
		defer close(gone)
		piece := make([]byte, 1<<20)
		for r.Context().Err() == nil {
			if _, err := w.Write(piece); err != nil {
				return
			}
		}
	})
	p := startProxy(t, Config{Decodes: []DecodeEngine{decode.asDecode("h")}}, func(c *Config) { c.WriteTimeout = time.Second })
	p.minClientRate = 1 << 40 // So that bytes that this client reads earn no time.
	conn := sendText(t, p, shortRequest)
	// The client reads a piece after each pause, for as long as the answer goes on.
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		piece := make([]byte, 64<<10)
		for tick := time.NewTicker(5 * time.Millisecond); ; <-tick.C {
			if _, err := io.ReadFull(conn, piece); err != nil {
				return
			}
		}
	}()
	select {
	case <-gone:
	case <-time.After(testTimeout):
		t.Error("it keeps the room of a request")
	}
	_ = conn.Close()
	<-ended
	awaitCondition(t, "it is not counted", func() bool { return p.Stats().Left == 1 })
}

// The test's binary becomes a separate proxy process with few files.
const (
	fewFilesEnv = "KVFERRY_TEST_PROXY_DECODE"
	fewFiles    = 128
)

// A startReport is the report of that proxy process.
type startReport struct {
	Address string
	Error   string
}

func serveWithFewFiles(decode string) {
	said := func(x startReport) { _ = json.NewEncoder(os.Stdout).Encode(x) }
	err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: fewFiles, Max: fewFiles})
	c := Defaults()
	c.Address = "127.0.0.1:0"
	var d DecodeEngine
	if err == nil {
		d, err = ParseDecode(decode)
	}
	c.Decodes = []DecodeEngine{d}
	var p *Proxy
	if err == nil {
		p, err = Listen(c)
	}
	if err != nil {
		said(startReport{Error: err.Error()})
		return
	}
	said(startReport{Address: p.Addr().String()})
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// Silent connections cannot take all files that the process may open: the connections that have waited longest are
// closed first, and no connection waits for a file.
func TestIdleConnectionsLeaveFiles(t *testing.T) {
	decode := newEngine(t, answerText("answer"))
	child := proctest.Start(t, proctest.SelfCommand(fewFilesEnv+"="+decode.URL+"=h:1:2"))
	var x startReport
	child.ReceiveJSON(&x)
	if x.Error != "" {
		t.Fatal(x.Error)
	}
	for range 2 * fewFiles {
		conn, err := net.Dial("tcp", x.Address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	for range 4 {
		res, err := newClientFrom(t, "127.0.0.2").Post("http://"+x.Address+"/v1/completions", jsonType, strings.NewReader(completion))
		if err != nil {
			t.Fatal(err)
		}
		wantAnswer(t, res, http.StatusOK, "answer")
		_ = res.Body.Close()
	}
	res, err := newClient(t).Get("http://" + x.Address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	wantAnswer(t, res, http.StatusOK, "kvferry_proxy_connections_refused_total 0\n")
}
