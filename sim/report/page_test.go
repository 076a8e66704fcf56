package report

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"html"
	"image/color"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kvferry/kvferry/sim"
	"github.com/kvferry/kvferry/sim/trace"
)

// The page is tested where people see it: in a real browser without a window. `make report-test`, which
// is part of `make test`, installs one and names it in KVFERRY_CHROMIUM.
func chromium(t *testing.T) string {
	t.Helper()
	path := os.Getenv("KVFERRY_CHROMIUM")
	if path == "" {
		t.Skip("KVFERRY_CHROMIUM names no browser: use `make report-test`")
	}
	return path
}

// browse runs the browser over a page once. The time limit only ends a browser that hangs.
func browse(t *testing.T, args ...string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	flags := []string{"--headless", "--disable-gpu", "--hide-scrollbars", "--window-size=1500,950", "--force-device-scale-factor=1",
		"--virtual-time-budget=8000", "--user-data-dir=" + t.TempDir()}
	if os.Geteuid() == 0 {
		flags = append(flags, "--no-sandbox")
	}
	cmd := exec.CommandContext(ctx, chromium(t), append(flags, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, errs.Bytes())
	}
	return out.Bytes()
}

// dom is the page as it is once its script has run.
type dom struct {
	t    *testing.T
	text string
	body map[string]string // the data attributes of its body
}

var attribute = regexp.MustCompile(`data-([a-z-]+)="([^"]*)"`)

func open(t *testing.T, file, view string) dom {
	t.Helper()
	d := dom{t: t, text: string(browse(t, "--dump-dom", "file://"+file+view)), body: map[string]string{}}
	tag := regexp.MustCompile(`<body[^>]*>`).FindString(d.text)
	for _, a := range attribute.FindAllStringSubmatch(tag, -1) {
		d.body[a[1]] = html.UnescapeString(a[2])
	}
	if d.body["error"] != "" || d.body["ready"] != "yes" {
		t.Fatalf("the page's script failed: %q\n%s", d.body["error"], tag)
	}
	return d
}

func (d dom) want(name, value string) {
	d.t.Helper()
	if d.body[name] != value {
		d.t.Errorf("%s is %q, want %q", name, d.body[name], value)
	}
}

func (d dom) wantText(parts ...string) {
	d.t.Helper()
	text := html.UnescapeString(regexp.MustCompile(`(?s)<script.*?</script>|<[^>]*>`).ReplaceAllString(d.text, ""))
	for _, p := range parts {
		if !strings.Contains(text, p) {
			d.t.Errorf("the page does not say %q", p)
		}
	}
}

// broken is a real run with a violation put into it: as if its last grant had been wrong.
func broken(t *testing.T) *trace.Trace {
	t.Helper()
	r, err := sim.Run(sim.Options{Seed: 5, Record: true})
	if err != nil {
		t.Fatal(err)
	}
	tr := r.Trace
	g := tr.Grants[len(tr.Grants)-1]
	v := &trace.Violation{At: g.From, Property: "S4", Promise: sim.Promise("S4"), Story: "node 9 grants a page <that> is not its own",
		Concerns: g.Refs, Nodes: []int{g.Node}, Replay: tr.Title}
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

// inView counts the messages of a stretch of time that concern a ref, or with -1 all.
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
	file := write(t, tr)
	d := open(t, file, "")
	var lanes []string
	for _, n := range tr.Nodes {
		lanes = append(lanes, n.Name)
	}
	d.want("lanes", strings.Join(lanes, " "))
	d.wantText("S4 broken", tr.Violation.Promise, tr.Violation.Story, tr.Title, tr.Refs[tr.Violation.Concerns[0]])
	if got := strings.Count(d.text, "<li data-id="); got != len(tr.Violation.Steps) {
		t.Errorf("%d steps told, want %d", got, len(tr.Violation.Steps))
	}
	// It opens where the violation is.
	from, to := number(t, d.body["from"]), number(t, d.body["to"])
	if at := float64(tr.Violation.At); from > at || to < at || to-from > 5e9 {
		t.Errorf("it shows %v to %v, the violation is at %v", from, to, at)
	}
	if d.body["messages"] != strconv.Itoa(inView(tr, int64(from), int64(to), -1)) {
		t.Errorf("%s messages in view, want %d", d.body["messages"], inView(tr, int64(from), int64(to), -1))
	}
}

func number(t *testing.T, s string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestBrowserFollowsTheAddress(t *testing.T) {
	tr := broken(t)
	file := write(t, tr)
	from, to := tr.End/4, tr.End/2
	window := fmt.Sprintf("#from=%.9f&to=%.9f", float64(from)/1e9, float64(to)/1e9)
	all := inView(tr, from, to, -1)

	d := open(t, file, window)
	d.want("messages", strconv.Itoa(all))

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
	d = open(t, file, window+"&filter="+strings.ReplaceAll(name, " ", "+"))
	d.want("messages", strconv.Itoa(some))

	d = open(t, file, window+"&hide=messages,pages&lanes="+tr.Nodes[0].Name+"&selected=transfer:0")
	d.want("messages", "0")
	d.want("pages", "0")
	d.want("lanes", tr.Nodes[0].Name)
	d.wantText(fmt.Sprintf("transfer %d: %s", tr.Transfers[0].ID, tr.Transfers[0].Code))
}

// driven does what a person does with wheel, buttons, keys and mouse, and writes down what came of it.
const driven = `<script>
const settle = () => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done))); // Two frames: the first draws.
const breadth = () => document.body.dataset.to - document.body.dataset.from;
const press = k => dispatchEvent(new KeyboardEvent('keydown', {key: k, bubbles: true}));
const failures = [];
const demand = (what, ok) => { if (!ok) failures.push(what); };
(async () => {
  await settle();
  let before = breadth();
  document.getElementById('in').click(); await settle(); demand('button zooms in', breadth() < before);
  before = breadth(); press('-'); await settle(); demand('key zooms out', breadth() > before);
  before = breadth();
  document.getElementById('lanes').dispatchEvent(new WheelEvent('wheel', {deltaY: -300, bubbles: true, cancelable: true})); await settle();
  demand('wheel zooms in', breadth() < before);
  before = +document.body.dataset.from; press('ArrowLeft'); await settle(); demand('key moves', +document.body.dataset.from < before);
  press('0'); await settle(); demand('whole run', breadth() >= trace.end); demand('all messages', +document.body.dataset.messages === trace.messages.length);
  press('v'); await settle(); demand('back to the violation', breadth() < trace.end && document.body.dataset.from < violation.at && document.body.dataset.to > violation.at);
  const lane = [...document.querySelectorAll('#kinds button')].find(b => b.textContent === trace.nodes[0].name);
  lane.click(); await settle(); demand('a lane goes', !document.body.dataset.lanes.split(' ').includes(lane.textContent));
  lane.click(); await settle(); demand('and comes back', document.body.dataset.lanes.split(' ').includes(lane.textContent));
  document.querySelector('#concerns button').click(); await settle();
  demand('a name filters', document.getElementById('filter').value === trace.refs[violation.concerns[0]]);
  document.getElementById('filter').value = 'nothing is called so';
  document.getElementById('filter').dispatchEvent(new Event('input')); await settle();
  demand('a filter that nothing passes', document.body.dataset.messages === '0' && document.body.dataset.spans === '0');
  document.getElementById('filter').value = ''; document.getElementById('filter').dispatchEvent(new Event('input'));
  document.querySelector('#steps li').click(); await settle();
  demand('a step is selected', document.getElementById('details').textContent.includes(trace.events[violation.steps[0]].text));
  const target = hits.find(h => !h.line && h.x0 > 200);
  const at = {clientX: document.getElementById('lanes').getBoundingClientRect().left + (target.x0 + target.x1) / 2,
    clientY: document.getElementById('lanes').getBoundingClientRect().top + (target.y0 + target.y1) / 2, bubbles: true, pointerId: 1};
  document.getElementById('lanes').dispatchEvent(new PointerEvent('pointermove', at)); await settle();
  demand('pointing tells what it is', !document.getElementById('tip').hidden && document.getElementById('tip').textContent.length > 10);
  await new Promise(done => setTimeout(done, 500));
  demand('the address follows', location.hash.includes('from=') && location.hash.includes('selected='));
  document.body.dataset.failures = failures.join('; ');
  document.body.dataset.driven = 'yes';
})();
</script>`

func TestBrowserObeysMouseAndKeys(t *testing.T) {
	file := write(t, broken(t))
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, bytes.Replace(page, []byte("</body>"), []byte(driven+"</body>"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	d := open(t, file, "")
	d.want("driven", "yes")
	d.want("failures", "")
}

// A long run stays whole and drawable, and a run in which nothing happened too.
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
	d := open(t, write(t, &big), "")
	d.want("messages", strconv.Itoa(len(big.Messages)))
	d.wantText("every promise held")

	d = open(t, write(t, &trace.Trace{Title: "nothing", End: 1}), "")
	d.want("lanes", "")
	d.want("messages", "0")
}

// What a run holds is shown, never obeyed.
func TestBrowserShowsHostileWordsAsWords(t *testing.T) {
	tr := broken(t)
	evil := `</script><script>document.body.dataset.error = "obeyed"</script><img src=x onerror=alert(1)>`
	tr.Violation.Story, tr.Violation.Keys = evil, []string{evil}
	tr.Title = evil
	for i := range tr.Events {
		tr.Events[i].Words = evil
	}
	tr.Refs[tr.Violation.Concerns[0]] = evil
	d := open(t, write(t, tr), "")
	d.wantText(evil)
	if strings.Contains(d.text, "<img") {
		t.Error("an element came out of the data")
	}
}

// The picture is drawn: in both colour schemes it has the violation's colour, and more than a few others.
func TestBrowserDraws(t *testing.T) {
	file := write(t, broken(t))
	for scheme, want := range map[string]struct {
		flag string
		back color.RGBA
	}{
		"light": {"--blink-settings=preferredColorScheme=1", color.RGBA{255, 255, 255, 255}},
		"dark":  {"--blink-settings=preferredColorScheme=0", color.RGBA{0x14, 0x18, 0x1d, 255}},
	} {
		shot := filepath.Join(t.TempDir(), scheme+".png")
		browse(t, want.flag, "--screenshot="+shot, "file://"+file)
		f, err := os.Open(shot)
		if err != nil {
			t.Fatal(err)
		}
		picture, err := png.Decode(f)
		f.Close()
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
		if len(seen) < 50 || seen[want.back] < 10_000 || seen[grant] == 0 {
			t.Errorf("%s: %d colours, %d of the background, %d of grants", scheme, len(seen), seen[want.back], seen[grant])
		}
	}
}

// Without a browser, too: the data in the page is the trace, whole.
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
