// Package chromium drives a headless Chromium for tests of pages, over a pair of pipes with the DevTools protocol: JSON
// messages, each terminated by a zero byte. All tests of a package share a browser, and each test opens separate tabs.
//
// Example: a test opens a tab with [Open], looks at the page with [Tab.Eval], and [Tab.CheckClean] fails the test if a
// script failed or if the page requested anything from elsewhere. TestMain calls [Close] after the tests.
package chromium

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

// A browser is a headless Chromium process.
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

// Close ends the browser, if a test has started one.
func Close() {
	if shared != nil {
		shared.close()
		shared = nil
	}
}

// sharedBrowser returns the browser, and starts it if there is none. It skips the test if KVFERRY_CHROMIUM names no
// browser: `make report-test`, which is part of `make test`, installs a Chromium and names it there.
func sharedBrowser(t *testing.T) *browser {
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
			_ = os.RemoveAll(home)
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

// A Tab shows one page.
type Tab struct {
	t       *testing.T
	b       *browser
	session string
	origin  string // that the page may request things from
}

// A Window is the window of a tab.
type Window struct {
	Width, Height int
	Scheme        string // "light" or "dark"
}

// Open opens a page in a tab of its own and waits until it is loaded. The page may request only what begins with origin.
func Open(t *testing.T, url, origin string, w Window) *Tab {
	t.Helper()
	b := sharedBrowser(t)
	p := &Tab{t: t, b: b, origin: origin}
	var target struct {
		TargetID string `json:"targetId"`
	}
	p.Do("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct {
		SessionID string `json:"sessionId"`
	}
	p.Do("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	p.session = attached.SessionID
	t.Cleanup(func() {
		if err := b.call("", "Target.closeTarget", map[string]any{"targetId": target.TargetID}, nil); err != nil {
			t.Error(err)
		}
	})
	b.events = nil
	for _, domain := range []string{"Page", "Runtime", "Network", "Log"} {
		p.Do(domain+".enable", nil, nil)
	}
	p.Resize(w.Width, w.Height)
	p.Do("Emulation.setEmulatedMedia",
		map[string]any{"features": []any{map[string]any{"name": "prefers-color-scheme", "value": w.Scheme}}}, nil)
	p.Do("Page.setLifecycleEventsEnabled", map[string]any{"enabled": true}, nil)
	var begun struct {
		LoaderID string `json:"loaderId"`
	}
	p.Do("Page.navigate", map[string]any{"url": url}, &begun)
	p.awaitLoad(begun.LoaderID)
	p.CheckClean()
	return p
}

// Resize gives the tab another size.
func (p *Tab) Resize(width, height int) {
	p.t.Helper()
	p.Do("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}, nil)
}

// Do calls a method of the DevTools protocol. The result may be nil.
func (p *Tab) Do(method string, params, result any) {
	p.t.Helper()
	if err := p.b.call(p.session, method, params, result); err != nil {
		p.t.Fatal(err)
	}
}

// awaitLoad waits until the page of that loader is there. The tab's empty first page is loaded as well, at its own
// time.
func (p *Tab) awaitLoad(loader string) {
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

// CheckClean fails the test if a script failed, if the browser reported an error such as a breach of the page's content
// security policy, or if the page requested anything from elsewhere.
func (p *Tab) CheckClean() {
	p.t.Helper()
	for _, a := range p.b.events {
		if a.Session != p.session {
			continue
		}
		switch a.Method {
		case "Runtime.exceptionThrown":
			p.t.Fatalf("a script failed: %s", a.Params)
		case "Log.entryAdded":
			// A request that fails, because its server has ended, is for the page to handle.
			text := string(a.Params)
			if strings.Contains(text, `"level":"error"`) && !strings.Contains(text, `"source":"network"`) {
				p.t.Errorf("the browser reports an error: %s", a.Params)
			}
		case "Network.requestWillBeSent":
			var sent struct {
				Request struct{ URL string }
			}
			if err := json.Unmarshal(a.Params, &sent); err != nil || !strings.HasPrefix(sent.Request.URL, p.origin) {
				p.t.Errorf("the page asks the network: %s", a.Params)
			}
		}
	}
	p.b.events = slices.DeleteFunc(p.b.events, func(a answer) bool { return a.Session == p.session })
}

// Eval returns the value of an expression as text. If the value is a promise, Eval waits until the promise is settled.
func (p *Tab) Eval(expression string) string {
	p.t.Helper()
	var r struct {
		Result struct {
			Value any `json:"value"`
		} `json:"result"`
		Exception *struct {
			Text string `json:"text"`
		} `json:"exceptionDetails"`
	}
	p.Do("Runtime.evaluate", map[string]any{"expression": expression, "awaitPromise": true, "returnByValue": true}, &r)
	if r.Exception != nil {
		p.t.Fatalf("%s: %s", expression, r.Exception.Text)
	}
	if r.Result.Value == nil {
		return ""
	}
	return fmt.Sprint(r.Result.Value)
}

// Drawn waits until changes are visible on the screen, which is after the next frame.
func (p *Tab) Drawn() {
	p.t.Helper()
	p.Eval(`new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(''))))`)
	p.CheckClean()
}

// Screenshot returns what the tab shows as a PNG.
func (p *Tab) Screenshot() []byte {
	p.t.Helper()
	var shot struct {
		Data []byte `json:"data"`
	}
	p.Do("Page.captureScreenshot", map[string]any{"format": "png"}, &shot)
	return shot.Data
}
