package operator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/attach"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"github.com/kvferry/kvferry/runtime/directory"
	"github.com/kvferry/kvferry/tools/chromium"
)

// openPage opens the status page of a server.
func openPage(t *testing.T, s *Server, w chromium.Window) *chromium.Tab {
	t.Helper()
	base := "http://" + s.Addr().String() + "/"
	tab := chromium.Open(t, base, base, w)
	awaitText(t, tab, `document.body.dataset.ready`, "yes")
	return tab
}

// awaitText waits until the value of an expression contains a text. The page asks once a second while it is in front.
func awaitText(t *testing.T, tab *chromium.Tab, expression, part string) {
	t.Helper()
	tab.Do("Page.bringToFront", nil, nil)
	got := ""
	for deadline := time.Now().Add(testTimeout); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if got = tab.Eval(expression); strings.Contains(got, part) {
			tab.CheckClean()
			return
		}
	}
	t.Fatalf("%s is %q, want %q in it", expression, got, part)
}

// textOf is an expression for the text of the elements that a selector finds, as people see it.
func textOf(selector string) string {
	return fmt.Sprintf(`[...document.querySelectorAll(%q)].map(e => e.innerText).join("\n")`, selector)
}

// wide is the window of most tests.
var wide = chromium.Window{Width: 1500, Height: 950, Scheme: "light"}

// The page of a node shows its pools, its peers and its last transfers by stage, and what is in progress. What happens
// later appears without loading the page again.
func TestPageShowsANode(t *testing.T) {
	timers := [2]*Timer{NewTimer(), NewTimer()}
	from, to := openNode(t, "sender", timers[0]), openNode(t, "receiver", timers[1])
	sender := serve(t, Config{Sources: []Source{Node(from, timers[0])}})
	receiver := serve(t, Config{Sources: []Source{Node(to, timers[1])}})
	held := put(t, from, to, "first", "m@1@0@a@bfloat16", "m@1@0@b@bfloat16")
	t.Cleanup(func() { _ = held.Release(context.Background()) })

	tab := openPage(t, sender, wide)
	awaitText(t, tab, textOf("header"), "serving")
	awaitText(t, tab, textOf(".pool"), "64 of 64 pages free")
	awaitText(t, tab, textOf("#peers tbody"), fmt.Sprintf("→ 127.0.0.1:%d", peerOf(to).InitPort))
	awaitText(t, tab, textOf("#peers tbody"), "ready")
	awaitText(t, tab, textOf("#peers tbody"), "shm")
	awaitText(t, tab, `document.querySelectorAll("#transfers tbody tr").length`, "1")
	awaitText(t, tab, `document.querySelector("#transfers tbody td.wide").title`, "allocation") // Small chunks travel in the request.
	if n := tab.Eval(`[...document.querySelectorAll("#transfers tbody .bar i")].filter(e => e.offsetWidth > 0).length`); n == "0" {
		t.Error("no stage of the put is seen")
	}
	tab.Eval(`window.loadedOnce = "yes"`)

	other := openPage(t, receiver, wide)
	awaitText(t, other, textOf("#peers tbody"), "←")
	awaitText(t, other, textOf(".pool"), "62 of 64 pages free")
	awaitText(t, other, textOf("#transfers tbody"), "get")
	awaitText(t, other, textOf("#operations tbody"), "pinned")

	second := put(t, from, to, "second", "m@1@0@c@bfloat16")
	t.Cleanup(func() { _ = second.Release(context.Background()) })
	awaitText(t, tab, `document.querySelectorAll("#transfers tbody tr").length`, "2")
	if got := tab.Eval(`window.loadedOnce`); got != "yes" {
		t.Error("the page was loaded again")
	}

	// A put that waits for pages is in progress at both ends, and its peer is found by the field. The receiver refuses it
	// after a while, so it is tried again.
	keys := make([]string, 61)
	for i := range keys {
		keys[i] = fmt.Sprintf("m@1@0@f%x@bfloat16", i)
	}
	full := []*runtime.Pages{put(t, from, to, "full", keys[:31]...), put(t, from, to, "fuller", keys[31:]...)}
	waiting := make(chan error, 1)
	go func() {
		err := fmt.Errorf("not tried")
		for i := 0; err != nil && i < 1000; i++ {
			err = tryPut(t, from, peerOf(to), testTimeout, fmt.Sprint("waits ", i), "m@1@0@d@bfloat16")
			time.Sleep(10 * time.Millisecond)
		}
		waiting <- err
	}()
	awaitText(t, tab, textOf("#operations tbody"), "allocation")
	awaitText(t, tab, textOf("#holds tbody"), "put")
	awaitText(t, other, textOf("#operations tbody"), "waiting for pages")
	awaitText(t, other, textOf("#problems"), "node/pool: no page of 64 is free")
	saveShots(t, other, "full")
	other.Eval(`peer.value = "nobody"; peer.dispatchEvent(new Event("input"))`)
	awaitText(t, other, textOf("#peers .none"), "There is no peer")
	awaitText(t, tab, textOf("#transfers tr.failed"), "no_memory")
	awaitText(t, tab, textOf("#peers tbody"), "circuit breaker")
	saveShots(t, tab, "sender")
	tab.Eval(`spread.click()`)
	if n := tab.Eval(`new Set([...document.querySelectorAll("#transfers tbody .bar")].map(e => Math.round(e.offsetWidth))).size`); n != "1" {
		t.Errorf("bars of the same length have %s lengths", n)
	}

	// Pause keeps the page as it is.
	tab.Eval(`pause.click()`)
	awaitText(t, tab, textOf("#live"), "paused")
	before := tab.Eval(textOf("main"))
	for _, pages := range full {
		if err := pages.Release(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-waiting; err != nil {
		t.Errorf("the put that waited: %v", err)
	}
	time.Sleep(1500 * time.Millisecond)
	if after := tab.Eval(textOf("main")); after != before {
		t.Errorf("a paused page changes from\n%s\nto\n%s", before, after)
	}
	tab.Eval(`pause.click()`)
	awaitText(t, tab, textOf("#operations .none"), "Nothing is in progress")

	// A process that is gone shows.
	if err := sender.Close(); err != nil {
		t.Fatal(err)
	}
	awaitText(t, tab, `document.querySelector("#live").textContent`, "no answer")
}

// saveShots writes pictures of a tab to the folder KVFERRY_SHOTS, if it is set, for people who change the page.
func saveShots(t *testing.T, tab *chromium.Tab, name string) {
	t.Helper()
	folder := os.Getenv("KVFERRY_SHOTS")
	if folder == "" {
		return
	}
	for size, width := range map[string]int{"wide": 1500, "narrow": 420} {
		tab.Resize(width, 950)
		tab.Drawn()
		if err := os.WriteFile(filepath.Join(folder, name+"-"+size+".png"), tab.Screenshot(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tab.Resize(wide.Width, wide.Height)
}

// Text that a peer has chosen is shown as text, wherever it appears.
func TestPageShowsHostileText(t *testing.T) {
	const hostile = `<img src=x onerror="document.body.dataset.broken='yes'"><script>document.body.dataset.broken='yes'</script>`
	answer := func(x any) http.HandlerFunc { return func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, x) } }
	age := 5.0
	s := serve(t, Config{Sources: []Source{{
		Name: "node", State: func(context.Context) any {
			return nodeInfo{State: hostile, Role: hostile, Incarnation: hostile, PageBytes: 1, Servers: []serverInfo{{hostile, hostile, 1}},
				Pages: []pagesInfo{{hostile, 9, map[string]int{"free": 4, "granted": 2, hostile: 1}}}, WaitsFor: map[string]int{hostile: 1}}
		},
		Checks: []Check{{Name: hostile, Probe: func(context.Context) error { return errors.New(hostile) }}},
		Pages: map[string]http.HandlerFunc{
			"/peers": answer(peersAnswer{2, []peer{
				{Direction: "from", Incarnation: "0badc0de", Name: hostile, Identity: hostile, State: hostile, StateSeconds: &age, Plane: hostile,
					Communicator: &communicator{State: hostile}},
				{Direction: "to", Address: hostile, State: "backoff", Code: hostile, Error: hostile, RetrySeconds: &age, Failures: 2,
					Breaker: &breaker{hostile, hostile, 3, 1}}}}),
			"/transfers": answer(transfersAnswer{9, []transfer{{Number: 9, Kind: hostile, Outcome: hostile, Error: hostile, Peer: "0badc0de",
				Chunks: 1, Bytes: 1, Seconds: 1, Stages: []stage{{hostile, 0.5}, {"wire", 0.5}}}}}),
			"/operations": answer(operationsAnswer{1, []operation{{Kind: hostile, Stage: hostile, Peer: hostile, Address: hostile, Chunks: 1}}}),
			"/holds":      answer(holdsAnswer{1, []hold{{Kind: hostile, Peer: hostile, Addr: hostile, Pages: 1, Revoked: true}}}),
		},
	}}})
	tab := openPage(t, s, wide)
	for _, part := range []string{"header", "#problems", ".pool", "#transfers tbody", "#peers tbody", "#operations tbody", "#holds tbody"} {
		awaitText(t, tab, textOf(part), "<img src=x")
	}
	tab.Drawn()
	if tab.Eval(`document.body.dataset.broken`) != "" || tab.Eval(`document.querySelectorAll("img").length`) != "0" ||
		tab.Eval(`document.scripts.length`) != "1" {
		t.Error("text of a peer has become markup")
	}
	saveShots(t, tab, "hostile")
}

// A directory and an agent have the page, too, with the sections that they can fill.
func TestPageOfOthers(t *testing.T) {
	cfg, err := config.ParseDirectory("directory", []byte("controller_monitor_ports: {pull: 8300, reply: 8400}"), nil)
	if err != nil {
		t.Fatal(err)
	}
	clear(cfg.Monitors)
	d, err := directory.Open(cfg, zmq.Config{}.Opener(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close(context.Background()) })
	tab := openPage(t, serve(t, Config{Sources: []Source{Directory(d)}}), chromium.Window{Width: 1500, Height: 950, Scheme: "dark"})
	awaitText(t, tab, textOf("header"), "directory")
	awaitText(t, tab, textOf("#counts"), "workers")
	const seen = `[...document.querySelectorAll("main section")].filter(e => !e.hidden).map(e => e.id).join(" ")`
	if got := tab.Eval(seen); got != "counts" {
		t.Errorf("the page of a directory has the sections %s", got)
	}
	saveShots(t, tab, "directory")

	timer := NewTimer()
	n := openNode(t, "receiver", timer)
	agent, err := attach.Serve(attach.Config{Node: n, Path: filepath.Join(t.TempDir(), "s")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = agent.Close(context.Background()) })
	narrow := chromium.Window{Width: 420, Height: 950, Scheme: "dark"}
	tab = openPage(t, serve(t, Config{Sources: []Source{Node(n, timer), Agent(agent)}}), narrow)
	awaitText(t, tab, textOf("header"), "receiver · agent")
	awaitText(t, tab, textOf("#counts"), "engines")
	if got := tab.Eval(seen); got != "pools counts transfers peers operations holds" {
		t.Errorf("the page of an agent has the sections %s", got)
	}
	saveShots(t, tab, "agent")
	if got := tab.Eval(`document.documentElement.scrollWidth > innerWidth`); got != "false" {
		t.Error("the page is wider than a narrow window")
	}
}

// A page from elsewhere that makes a browser resolve its name to this host reads nothing.
func TestLocalNamesOnly(t *testing.T) {
	s := serve(t, Config{Address: "localhost:0"})
	_, port, _ := net.SplitHostPort(s.Addr().String())
	for host, want := range map[string]int{
		"localhost": http.StatusOK, "LOCALHOST:" + port: http.StatusOK, "a.localhost:1": http.StatusOK, "127.0.0.1:" + port: http.StatusOK,
		"[::1]:" + port: http.StatusOK, "[::1]": http.StatusOK, "evil.example": http.StatusMisdirectedRequest,
		"evil.example:" + port: http.StatusMisdirectedRequest, "127.0.0.1.evil.example": http.StatusMisdirectedRequest,
		"localhost.evil.example:80": http.StatusMisdirectedRequest,
	} {
		for _, path := range []string{"/", "/status", "/metrics", "/debug/pprof/"} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.Addr().String()+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Host = host
			res, err := client(t, &http.Transport{}).Do(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
			if res.StatusCode != want {
				t.Errorf("%s of %s: %d, want %d", path, host, res.StatusCode, want)
			}
		}
	}
	if got := serveName(t, "prefill-1.internal:0", "PREFILL-1.internal:9410"); got != http.StatusOK {
		t.Errorf("the name that is configured: %d", got)
	}
}

// serveName returns the status of an answer for a host's name, of a server with an address.
func serveName(t *testing.T, address, host string) int {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Host = host
	w := httptest.NewRecorder()
	localOnly(address, http.HandlerFunc(servePage)).ServeHTTP(w, r)
	return w.Code
}

// The page is static, and its policy forbids everything but itself and the paths of its server.
func TestPageIsConfined(t *testing.T) {
	s := serve(t, Config{Sources: []Source{Node(openNode(t, "sender", NewTimer()), nil)}})
	res, err := client(t, &http.Transport{}).Get("http://" + s.Addr().String() + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	policy := res.Header.Get("Content-Security-Policy")
	if res.StatusCode != http.StatusOK || !strings.HasPrefix(policy, "default-src 'none'; ") || strings.Contains(policy, "unsafe") ||
		strings.Contains(policy, "*") {
		t.Errorf("%d with the policy %q", res.StatusCode, policy)
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"://", "innerHTML", "insertAdjacentHTML", "document.write", "eval(", " style=", " onclick="} {
		if strings.Contains(string(body), part) {
			t.Errorf("the page has %q", part)
		}
	}
}
