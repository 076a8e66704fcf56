package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/sim"
	"github.com/kvferry/kvferry/sim/trace"
)

// data returns a value that the page stores about its present view.
func (p tab) data(name string) string {
	p.t.Helper()
	return p.eval("document.body.dataset." + name)
}

func (p tab) figure(name string) float64 {
	p.t.Helper()
	v, err := strconv.ParseFloat(p.data(name), 64)
	if err != nil {
		p.t.Fatalf("%s: %v", name, err)
	}
	return v
}

func (p tab) want(name, value string) {
	p.t.Helper()
	if got := p.data(name); got != value {
		p.t.Errorf("%s is %q, want %q", name, got, value)
	}
}

func (p tab) wantText(selector string, parts ...string) {
	p.t.Helper()
	text := p.eval(fmt.Sprintf("document.querySelector(%q).textContent", selector))
	for _, part := range parts {
		if !strings.Contains(text, part) {
			p.t.Errorf("%s does not say %q", selector, part)
		}
	}
}

// broken returns the trace of a real run with an artificial violation, as if the last grant had been wrong.
func broken(t *testing.T) *trace.Trace {
	t.Helper()
	r, err := sim.Run(sim.Options{Seed: 6, RecordTrace: true})
	if err != nil {
		t.Fatal(err)
	}
	tr := r.Trace
	g := tr.Grants[len(tr.Grants)-1]
	v := &trace.Violation{At: g.From, Property: "S4", Promise: sim.Promise("S4"),
		Story:    "node 9 grants a page <that> is not its own",
		Concerns: g.Refs, Nodes: []int{g.Node}}
	for i, e := range tr.Events {
		if e.At <= g.From && slices.ContainsFunc(e.Refs, func(ref int) bool { return slices.Contains(g.Refs, ref) }) {
			v.Steps = append(v.Steps, i)
		}
	}
	v.Steps = v.Steps[max(0, len(v.Steps)-20):]
	tr.Violation = v
	return tr
}

func write(t *testing.T, tr *trace.Trace) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "run.html")
	if err := WriteFile(file, tr); err != nil {
		t.Fatal(err)
	}
	return file
}

// inView counts the messages of a period of time that concern a reference, or all messages if ref is -1.
func inView(tr *trace.Trace, from, to int64, ref int) (n int) {
	for _, m := range tr.Messages {
		end := max(m.Arrived, m.Sent)
		if m.Sent <= to && end >= from && (ref < 0 || slices.Contains(m.Refs, ref)) {
			n++
		}
	}
	return n
}

func TestBrowserShowsTheViolation(t *testing.T) {
	tr := broken(t)
	p := open(t, write(t, tr), "", "light")
	var lanes []string
	for _, n := range tr.Nodes {
		lanes = append(lanes, n.Name)
	}
	p.want("lanes", strings.Join(lanes, " "))
	p.wantText("header", "S4 broken", tr.Title)
	p.wantText("#violation", "S4", tr.Violation.Promise, tr.Violation.Story, tr.Refs[tr.Violation.Concerns[0]])
	if got := p.eval("document.querySelectorAll('#steps li').length"); got != strconv.Itoa(len(tr.Violation.Steps)) {
		t.Errorf("%s steps told, want %d", got, len(tr.Violation.Steps))
	}
	// The page opens at the violation.
	from, to := p.figure("from"), p.figure("to")
	if at := float64(tr.Violation.At); from > at || to < at || to-from > 5e9 {
		t.Errorf("it shows %v to %v, the violation is at %v", from, to, at)
	}
	p.want("messages", strconv.Itoa(inView(tr, int64(from), int64(to), -1)))
	if p.figure("marks") == 0 {
		t.Error("none of its steps is marked in view")
	}
}

// A user's machine may have no pages, grants and transfers: the page then explains none of these, and offers no switch
// to hide these.
func TestBrowserExplainsWhatThereIs(t *testing.T) {
	tr := &trace.Trace{Title: "lock", End: 1e9,
		Nodes: []trace.Node{
			{Name: "n0", Role: "server", States: []trace.Span{{From: 0, To: trace.Never, State: "up"}}},
			{Name: "n1", Role: "a", States: []trace.Span{{From: 0, To: 5e8, State: "up"}, {From: 5e8, To: trace.Never, State: "down"}}},
		},
		Messages: []trace.Message{{From: 1, To: 0, Channel: "other0", Kind: `"acquire"`, Sent: 1e8, Arrived: 2e8}},
		Events:   []trace.Event{{At: 1e8, Node: 1, Text: "Send"}}}
	p := open(t, write(t, tr), "", "light")
	for selector, wrong := range map[string][]string{
		"#legend": {"page", "grant", "transfer", "allocation", "handshake", "proxy", "frozen"},
		"#kinds":  {"pages", "grants", "transfers", "commands"},
		"footer":  {"grants", "transfers"},
	} {
		text := p.eval(fmt.Sprintf("document.querySelector(%q).textContent", selector))
		for _, word := range wrong {
			if strings.Contains(text, word) {
				t.Errorf("%s speaks of %s: %s", selector, word, text)
			}
		}
	}
	p.wantText("#legend", "message", "node is down", "fault")
	p.wantText("#kinds", "messages", "events")
	whole := open(t, write(t, broken(t)), "", "light")
	whole.wantText("#legend", "page ready", "grant;", "transfer;", "message: allocation")
	whole.wantText("#kinds", "pages", "grants", "transfers", "commands")
}

func TestBrowserFollowsTheAddress(t *testing.T) {
	tr := broken(t)
	file := write(t, tr)
	from, to := tr.End/4, tr.End/2
	window := fmt.Sprintf("#from=%.9f&to=%.9f", float64(from)/1e9, float64(to)/1e9)
	all := inView(tr, from, to, -1)
	open(t, file, window, "light").want("messages", strconv.Itoa(all))

	var name string
	var some int
	for i, ref := range tr.Refs {
		if n := inView(tr, from, to, i); strings.HasPrefix(ref, "request ") && n > some && n < all {
			name, some = ref, n
		}
	}
	if some == 0 {
		t.Fatal("no request has messages in that view")
	}
	open(t, file, window+"&filter="+strings.ReplaceAll(name, " ", "+"), "light").want("messages", strconv.Itoa(some))

	p := open(t, file, window+"&hide=messages,pages&lanes="+tr.Nodes[0].Name+"&selected=transfer:0", "light")
	p.want("messages", "0")
	p.want("pages", "0")
	p.want("lanes", tr.Nodes[0].Name)
	p.wantText("#details", fmt.Sprintf("transfer %d: %s", tr.Transfers[0].ID, tr.Transfers[0].Code))
}

func TestBrowserObeysMouseAndKeys(t *testing.T) {
	tr := broken(t)
	p := open(t, write(t, tr), "", "light")
	breadth := func() float64 { return p.figure("to") - p.figure("from") }
	smaller := func(what string, do func()) {
		t.Helper()
		before := breadth()
		if do(); breadth() >= before {
			t.Errorf("%s does not zoom in: %v after %v", what, breadth(), before)
		}
	}
	smaller("the button", func() { p.click("#in") })
	smaller("the wheel", func() { p.mouse("mouseWheel", 600, 300, map[string]any{"deltaX": 0, "deltaY": -300}) })
	smaller("the key", func() { p.press("+") })

	before := p.figure("from")
	if p.press("ArrowLeft"); p.figure("from") >= before {
		t.Error("the key does not move the view")
	}
	before = p.figure("from")
	p.mouse("mousePressed", 600, 300, map[string]any{"button": "left", "clickCount": 1})
	p.mouse("mouseMoved", 500, 300, map[string]any{"button": "left", "buttons": 1})
	p.mouse("mouseReleased", 500, 300, map[string]any{"button": "left"})
	if p.figure("from") <= before {
		t.Error("dragging does not move the view")
	}
	p.press("0")
	if breadth() < float64(tr.End) {
		t.Errorf("the whole run is %v wide, %v are shown", tr.End, breadth())
	}
	p.want("messages", strconv.Itoa(len(tr.Messages)))
	p.press("v")
	if at := float64(tr.Violation.At); breadth() >= float64(tr.End) || p.figure("from") > at || p.figure("to") < at {
		t.Error("the key does not lead to the violation")
	}

	lanes := p.data("lanes")
	p.click("#kinds button")
	if got := p.data("lanes"); strings.Contains(got, tr.Nodes[0].Name) {
		t.Errorf("lane %s was hidden, shown are %s", tr.Nodes[0].Name, got)
	}
	p.click("#kinds button")
	p.want("lanes", lanes)

	p.click("#concerns button")
	if got := p.eval("document.getElementById('filter').value"); got != tr.Refs[tr.Violation.Concerns[0]] {
		t.Errorf("a name was clicked, the filter is %q", got)
	}
	p.eval("setFilter('transfer 3')")
	p.press("f")
	if third := tr.Transfers[2]; p.figure("from") > float64(third.Started) || p.figure("to") < float64(third.Ended) ||
		breadth() > float64(tr.End)/2 {
		t.Errorf("it shows %v to %v, transfer 3 went from %d to %d", p.figure("from"), p.figure("to"), third.Started,
			third.Ended)
	}
	p.eval("setFilter('nothing is called so')")
	p.drawn()
	p.want("messages", "0")
	p.want("spans", "0")
	p.eval("setFilter('')")

	p.click("#steps li:last-child")
	p.wantText("#details", tr.Events[tr.Violation.Steps[len(tr.Violation.Steps)-1]].Text)
	p.press("v")
	bar := `(() => { const h = hits.find(h => h.item.layer === 'page' && h.x1 - h.x0 > 30),` +
		` c = canvas.getBoundingClientRect();` +
		` return [c.left + (h.x0 + h.x1) / 2, c.top + (h.y0 + h.y1) / 2, h.item.title].join('|'); })()`
	place := strings.Split(p.eval(bar), "|")
	x, _ := strconv.ParseFloat(place[0], 64)
	y, _ := strconv.ParseFloat(place[1], 64)
	p.mouse("mouseMoved", x, y, nil)
	p.wantText("#tip", place[2])
	p.mouse("mousePressed", x, y, map[string]any{"button": "left", "clickCount": 1})
	p.mouse("mouseReleased", x, y, map[string]any{"button": "left", "clickCount": 1})
	p.wantText("#details", place[2])
	if got := p.eval("writeAddress(), location.hash"); !strings.Contains(got, "selected=page") ||
		!strings.Contains(got, "from=") {
		t.Errorf("the address is %q", got)
	}
}

// The page can draw a long run completely, and also a run in which nothing happened.
func TestBrowserBearsBigAndEmptyRuns(t *testing.T) {
	tr := broken(t)
	big := *tr
	big.Events, big.Messages, big.Violation = nil, nil, nil
	for round := int64(0); len(big.Events) < 50_000; round++ {
		for _, e := range tr.Events {
			e.At += round * tr.End
			big.Events = append(big.Events, e)
		}
		for _, m := range tr.Messages {
			m.Sent += round * tr.End
			m.Arrived = max(m.Sent, m.Arrived+round*tr.End)
			big.Messages = append(big.Messages, m)
		}
		big.End = (round + 1) * tr.End
	}
	p := open(t, write(t, &big), "", "light")
	p.press("0")
	p.want("messages", strconv.Itoa(len(big.Messages)))
	p.wantText("header", "every promise held")
	took := p.eval("(() => { const t = performance.now(); for (let i = 0; i < 10; i++) draw(); return " +
		"(performance.now() " +
		"- t) / 10; })()")
	t.Logf("%d events, %d messages, whole run in view: %s ms to draw", len(big.Events), len(big.Messages), took)

	p = open(t, write(t, &trace.Trace{Title: "nothing", End: 1}), "", "light")
	p.want("lanes", "")
	p.want("messages", "0")
}

// Text in a run is shown, and never interpreted as HTML or as a script.
func TestBrowserShowsHostileWordsAsWords(t *testing.T) {
	tr := broken(t)
	evil := `</script><script>document.body.dataset.error = "obeyed"</script><img src=x onerror=alert(1)>`
	tr.Violation.Story, tr.Violation.Keys = evil, []string{evil}
	tr.Title = evil
	for i := range tr.Events {
		tr.Events[i].Explanation = evil
	}
	tr.Refs[tr.Violation.Concerns[0]] = evil
	p := open(t, write(t, tr), "", "light")
	p.want("error", "")
	p.wantText("header", evil)
	p.wantText("#violation", evil)
	p.wantText("#concerns", evil)
	if got := p.eval("document.querySelectorAll('img, script').length"); got != "3" {
		t.Errorf("the page has %s scripts and images, 3 are its own", got)
	}
}

// The picture is drawn: in both colour schemes it has the background of the scheme, grants, and many more colours.
func TestBrowserDraws(t *testing.T) {
	file := write(t, broken(t))
	for scheme, back := range map[string]color.RGBA{"light": {255, 255, 255, 255}, "dark": {0x14, 0x18, 0x1d, 255}} {
		var shot struct {
			Data []byte `json:"data"`
		}
		open(t, file, "", scheme).do("Page.captureScreenshot", map[string]any{"format": "png"}, &shot)
		picture, err := png.Decode(bytes.NewReader(shot.Data))
		if err != nil {
			t.Fatal(err)
		}
		seen := map[color.RGBA]int{}
		for y := range picture.Bounds().Dy() {
			for x := range picture.Bounds().Dx() {
				r, g, b, _ := picture.At(x, y).RGBA()
				seen[color.RGBA{uint8(r >> 8), uint8(g >> 8), uint8(b >> 8), 255}]++
			}
		}
		grant := color.RGBA{0xe6, 0x9f, 0x00, 255}
		if len(seen) < 50 || seen[back] < 10_000 || seen[grant] == 0 {
			t.Errorf("%s: %d colours, %d of the background, %d of grants", scheme, len(seen), seen[back], seen[grant])
		}
	}
}

// Also without a browser: the data in the page is the complete trace.
func TestPageHoldsTheTrace(t *testing.T) {
	tr := broken(t)
	tr.Violation.Story = "</script><b>&\u2028"
	var b bytes.Buffer
	if err := Write(&b, tr); err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?s)<script type="application/json" id="trace">(.*?)</script>`).FindSubmatch(b.Bytes())
	if m == nil {
		t.Fatal("no trace in the page")
	}
	var got trace.Trace
	if err := json.Unmarshal(m[1], &got); err != nil {
		t.Fatal(err)
	}
	want, _ := json.Marshal(tr)
	again, _ := json.Marshal(&got)
	if !bytes.Equal(want, again) {
		t.Error("the trace in the page is another")
	}
	if bytes.Contains(b.Bytes(), []byte("http://")) || bytes.Contains(b.Bytes(), []byte("https://")) {
		t.Error("the page names an address in the network")
	}
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, os.ErrClosed }

func TestWriteTellsOfAnError(t *testing.T) {
	if err := Write(failingWriter{}, &trace.Trace{}); err == nil {
		t.Error("no error of the writer is told")
	}
	if err := WriteFile(filepath.Join(t.TempDir(), "no", "such", "folder.html"), &trace.Trace{}); err == nil {
		t.Error("no error of the file is told")
	}
}
