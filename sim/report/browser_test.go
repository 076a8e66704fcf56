package report

import (
	"fmt"
	"os"
	"testing"

	"github.com/kvferry/kvferry/tools/chromium"
)

func TestMain(m *testing.M) {
	code := m.Run()
	chromium.Close()
	os.Exit(code)
}

// A tab shows one page.
type tab struct {
	*chromium.Tab
	t *testing.T
}

// open opens a file at a view, in a colour scheme, and waits until the page says that it is drawn.
func open(t *testing.T, file, view, scheme string) tab {
	t.Helper()
	p := tab{t: t, Tab: chromium.Open(t, "file://"+file+view, "file://", chromium.Window{Width: 1500, Height: 950, Scheme: scheme})}
	if got := p.eval(`document.body.dataset.ready`); got != "yes" {
		t.Fatalf("the page did not come up: ready is %q, error %q", got, p.eval(`document.body.dataset.error`))
	}
	return p
}

func (p tab) do(method string, params, result any) {
	p.t.Helper()
	p.Do(method, params, result)
}

func (p tab) eval(expression string) string {
	p.t.Helper()
	return p.Eval(expression)
}

func (p tab) drawn() {
	p.t.Helper()
	p.Drawn()
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
