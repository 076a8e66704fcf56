package report

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// A browser is a headless Chromium process, controlled over a pair of pipes with the DevTools protocol: JSON messages,
// each terminated by a zero byte. All tests share a browser, and each test opens separate tabs.
type browser struct {
	cmd     *exec.Cmd
	to      *os.File
	from    *os.File
	answers *bufio.Reader
	calls   int
	events  []answer // that came while something else was waited for
}

// answer is a message of the browser: the result of a call, or an event.
type answer struct {
	ID      int             `json:"id"`
	Session string          `json:"sessionId"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
	Result  json.RawMessage `json:"result"`
	Error   *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// hung is the time after which a test ends because its browser does not respond. It affects nothing else.
const hung = 2 * time.Minute

// shared is the browser of all tests, started by the first test that needs a browser.
var shared *browser

func TestMain(m *testing.M) {
	code := m.Run()
	if shared != nil {
		shared.close()
	}
	os.Exit(code)
}

// theBrowser starts it. The page is tested where people see it: `make report-test`, which is part of
// `make test`, installs a Chromium and names it in KVFERRY_CHROMIUM.
func theBrowser(t *testing.T) *browser {
	t.Helper()
	path := os.Getenv("KVFERRY_CHROMIUM")
	if path == "" {
		t.Skip("KVFERRY_CHROMIUM names no browser: use `make report-test`")
	}
	if shared == nil {
		b, err := startBrowser(path)
		if err != nil {
			t.Fatal(err)
		}
		shared = b
	}
	return shared
}

func startBrowser(path string) (*browser, error) {
	theirIn, to, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	from, theirOut, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	home, err := os.MkdirTemp("", "kvferry-browser-")
	if err != nil {
		return nil, err
	}
	flags := []string{"--headless", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe",
		"--user-data-dir=" + home, "about:blank"}
	if os.Geteuid() == 0 {
		flags = append([]string{"--no-sandbox"}, flags...)
	}
	b := &browser{cmd: exec.Command(path, flags...), to: to, from: from, answers: bufio.NewReader(from)}
	b.cmd.ExtraFiles = []*os.File{theirIn, theirOut} // 3 and 4, by the protocol
	b.cmd.Env = append(os.Environ(), "HOME="+home)
	if err := b.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	theirIn.Close()
	theirOut.Close()
	return b, nil
}

func (b *browser) close() {
	if err := b.call("", "Browser.close", nil, nil); err != nil {
		_ = b.cmd.Process.Kill() // The browser is not needed any more.
	}
	_ = b.cmd.Wait()
	b.to.Close()
	b.from.Close()
	for _, arg := range b.cmd.Args {
		if home, ok := strings.CutPrefix(arg, "--user-data-dir="); ok {
			os.RemoveAll(home)
		}
	}
}

// call sends a request and waits for the result, and keeps the events that arrive before the result.
func (b *browser) call(session, method string, params, result any) error {
	b.calls++
	ask := map[string]any{"id": b.calls, "method": method}
	if params != nil {
		ask["params"] = params
	}
	if session != "" {
		ask["sessionId"] = session
	}
	text, err := json.Marshal(ask)
	if err != nil {
		return err
	}
	if _, err := b.to.Write(append(text, 0)); err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	for {
		a, err := b.read()
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", method, err)
		case a.ID != b.calls:
			b.events = append(b.events, a)
		case a.Error != nil:
			return fmt.Errorf("%s: %s", method, a.Error.Message)
		case result == nil:
			return nil
		default:
			return json.Unmarshal(a.Result, result)
		}
	}
}

func (b *browser) read() (a answer, err error) {
	if err := b.from.SetReadDeadline(time.Now().Add(hung)); err != nil {
		return a, err
	}
	text, err := b.answers.ReadBytes(0)
	if err != nil {
		if err == io.EOF {
			err = fmt.Errorf("the browser is gone: %w", err)
		}
		return a, err
	}
	return a, json.Unmarshal(text[:len(text)-1], &a)
}

// A tab shows one page.
type tab struct {
	t       *testing.T
	b       *browser
	session string
}

// open opens a file at a view, in a colour scheme, and waits until the page says that it is drawn.
func open(t *testing.T, file, view, scheme string) tab {
	t.Helper()
	b := theBrowser(t)
	p := tab{t: t, b: b}
	var target struct {
		TargetID string `json:"targetId"`
	}
	p.do("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct {
		SessionID string `json:"sessionId"`
	}
	p.do("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	p.session = attached.SessionID
	t.Cleanup(func() {
		if err := b.call("", "Target.closeTarget", map[string]any{"targetId": target.TargetID}, nil); err != nil {
			t.Error(err)
		}
	})
	b.events = nil
	for _, domain := range []string{"Page", "Runtime", "Network"} {
		p.do(domain+".enable", nil, nil)
	}
	p.do("Emulation.setDeviceMetricsOverride", map[string]any{"width": 1500, "height": 950, "deviceScaleFactor": 1,
		"mobile": false}, nil)
	p.do("Emulation.setEmulatedMedia",
		map[string]any{"features": []any{map[string]any{"name": "prefers-color-scheme", "value": scheme}}}, nil)
	p.do("Page.setLifecycleEventsEnabled", map[string]any{"enabled": true}, nil)
	var begun struct {
		LoaderID string `json:"loaderId"`
	}
	p.do("Page.navigate", map[string]any{"url": "file://" + file + view}, &begun)
	p.awaitLoad(begun.LoaderID)
	p.clean()
	if got := p.eval(`document.body.dataset.ready`); got != "yes" {
		t.Fatalf("the page did not come up: ready is %q, error %q", got, p.eval(`document.body.dataset.error`))
	}
	return p
}

func (p tab) do(method string, params, result any) {
	p.t.Helper()
	if err := p.b.call(p.session, method, params, result); err != nil {
		p.t.Fatal(err)
	}
}

// awaitLoad waits until the page of that loader is there. The tab's empty first page is loaded as well, at its own
// time.
func (p tab) awaitLoad(loader string) {
	p.t.Helper()
	loaded := func(a answer) bool {
		var e struct{ LoaderID, Name string }
		return a.Method == "Page.lifecycleEvent" && a.Session == p.session &&
			json.Unmarshal(a.Params, &e) == nil && e.LoaderID == loader && e.Name == "load"
	}
	if slices.ContainsFunc(p.b.events, loaded) {
		return
	}
	for {
		a, err := p.b.read()
		if err != nil {
			p.t.Fatal(err)
		}
		p.b.events = append(p.b.events, a)
		if loaded(a) {
			return
		}
	}
}

// clean checks that no script failed and that the page requested nothing except the file itself.
func (p tab) clean() {
	p.t.Helper()
	for _, a := range p.b.events {
		if a.Session != p.session {
			continue
		}
		switch a.Method {
		case "Runtime.exceptionThrown":
			p.t.Fatalf("a script failed: %s", a.Params)
		case "Network.requestWillBeSent":
			if !strings.Contains(string(a.Params), `"url":"file://`) {
				p.t.Errorf("the page asks the network: %s", a.Params)
			}
		}
	}
}

// eval returns the value of an expression as text. If the value is a promise, eval waits until the promise is settled.
func (p tab) eval(expression string) string {
	p.t.Helper()
	var r struct {
		Result struct {
			Value any `json:"value"`
		} `json:"result"`
		Exception *struct {
			Text string `json:"text"`
		} `json:"exceptionDetails"`
	}
	p.do("Runtime.evaluate", map[string]any{"expression": expression, "awaitPromise": true, "returnByValue": true}, &r)
	if r.Exception != nil {
		p.t.Fatalf("%s: %s", expression, r.Exception.Text)
	}
	if r.Result.Value == nil {
		return ""
	}
	return fmt.Sprint(r.Result.Value)
}

// drawn waits until changes are visible on the screen, which is after the next frame.
func (p tab) drawn() {
	p.t.Helper()
	p.eval(`new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(''))))`)
	p.clean()
}

func (p tab) press(key string) {
	p.t.Helper()
	for _, kind := range []string{"keyDown", "keyUp"} {
		params := map[string]any{"type": kind, "key": key}
		if len(key) == 1 && kind == "keyDown" {
			params["text"] = key
		}
		p.do("Input.dispatchKeyEvent", params, nil)
	}
	p.drawn()
}

func (p tab) mouse(kind string, x, y float64, more map[string]any) {
	p.t.Helper()
	params := map[string]any{"type": kind, "x": x, "y": y}
	for k, v := range more {
		params[k] = v
	}
	p.do("Input.dispatchMouseEvent", params, nil)
	p.drawn()
}

func (p tab) click(selector string) {
	p.t.Helper()
	p.eval(fmt.Sprintf(`document.querySelector(%q).click()`, selector))
	p.drawn()
}
