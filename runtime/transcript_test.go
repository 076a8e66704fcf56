//go:build cgo && linux

package runtime_test

import (
	"bytes"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"github.com/kvferry/kvferry/runtime/plane/shm"
	"github.com/kvferry/kvferry/runtime/plane/tcp"
)

var updateFiles = flag.Bool("update", false,
	"write what situations tell into docs/errors.md and testdata/told.txt instead of comparing")

const (
	errorsFile     = "../docs/errors.md"
	transcriptFile = "testdata/told.txt"
	withLogs       = ", with logs"
)

// docMark is a place of docs/errors.md that shows what a situation tells: its errors, or everything, withLogs.
var docMark = regexp.MustCompile(`(?s)<!-- told: ([^\n]+?) -->\n(.*?)<!-- /told -->\n`)

// A situation is something that a user meets. It is played on real nodes, and what he reads of it stands in
// testdata/told.txt: the texts of errors, and the lines of both ends' logs from warnings on. Of some, docs/errors.md
// shows it.
type situation struct {
	name string
	code effects.Code // of the first error that it tells, whose text is shown
	play func(x *transcript)
}

// transcript is what a situation tells.
type transcript struct {
	*testing.T
	lines        []string
	firstErr     error // told at all
	nodes        []loggedNode
	cleanups     []func() // before the nodes are closed
	replacements []string // pairs: what chance chose, and what stands for it
	previous     string   // what the situation told when testdata/told.txt was written, its words one blank apart
}

// A loggedNode is a node of a situation, with its log.
type loggedNode struct {
	*runtime.Node
	name string
	log  *logBuffer
}

// logBuffer is a buffer that a log writes and a test reads.
type logBuffer struct {
	mu      sync.Mutex
	b       bytes.Buffer
	written chan struct{} // holds one: something was
}

func (l *logBuffer) awaitLine(x *transcript, line string) {
	x.Helper()
	for ctx := within(x); !strings.Contains(l.String(), line); {
		select {
		case <-l.written:
		case <-ctx.Done():
			x.Fatalf("the log has no %q but\n%s", line, l)
		}
	}
}

func (l *logBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.written <- struct{}{}:
	default:
	}
	return l.b.Write(b)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func situations() []situation {
	return slices.Concat(callSituations, peerSituations, fetchSituations, npuSituations)
}

// TestErrorsAreThoseOfTheDocs plays each situation and compares what it tells with testdata/told.txt, and with
// docs/errors.md.
func TestErrorsAreThoseOfTheDocs(t *testing.T) {
	var mu sync.Mutex
	got := readTranscripts(t) // Who is not played says itself why not; there may be no compiler for the software NPU.
	before := map[string]string{}
	for name, text := range got {
		before[name] = strings.Join(strings.Fields(text), " ")
	}
	t.Run("situations", func(t *testing.T) {
		for _, s := range situations() {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				x := &transcript{T: t, previous: before[s.name]}
				s.play(x)
				x.closeAll()
				if code := runtime.CodeOf(x.firstErr); code != s.code {
					t.Errorf("it tells %v (%v), want %v", code, x.firstErr, s.code)
				}
				mu.Lock()
				defer mu.Unlock()
				got[s.name] = x.render()
				t.Logf("\n%s", got[s.name])
			})
		}
	})
	var all strings.Builder
	for _, s := range situations() {
		fmt.Fprintf(&all, "== %s\n%s\n", s.name, got[s.name])
	}
	compareFile(t, transcriptFile, all.String())
	doc, err := os.ReadFile(errorsFile)
	if err != nil {
		t.Fatal(err)
	}
	compareFile(t, errorsFile, docMark.ReplaceAllStringFunc(string(doc), func(place string) string {
		mark := docMark.FindStringSubmatch(place)[1]
		name, whole := strings.CutSuffix(mark, withLogs)
		text := got[name]
		if !whole {
			text, _, _ = strings.Cut(text, "log of ")
		}
		if text == "" {
			t.Errorf("%s shows %q, which tells no error: write%s behind the name", errorsFile, mark, withLogs)
		}
		return fmt.Sprintf("<!-- told: %s -->\n```\n%s```\n<!-- /told -->\n", mark, text)
	}))
}

// readTranscripts is what each situation told when testdata/told.txt was written.
func readTranscripts(t *testing.T) map[string]string {
	t.Helper()
	data, err := os.ReadFile(transcriptFile)
	if err != nil && !*updateFiles {
		t.Fatal(err)
	}
	was := map[string]string{}
	for _, section := range strings.Split("\n"+string(data), "\n== ")[1:] {
		name, text, _ := strings.Cut(section, "\n")
		was[name] = strings.TrimRight(text, "\n") + "\n"
	}
	return was
}

// compareFile compares a file with what it should hold, or writes that.
func compareFile(t *testing.T, file, want string) {
	t.Helper()
	was, err := os.ReadFile(file)
	if *updateFiles {
		if !t.Failed() {
			err = os.WriteFile(file, []byte(want), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	is, should := strings.Split(string(was), "\n"), strings.Split(want, "\n")
	for i := range min(len(is), len(should)) {
		if is[i] != should[i] {
			t.Fatalf("%s:%d says\n%s\nand the nodes say\n%s\nrun go test ./runtime -run %s -update", file, i+1, is[i], should[i],
				t.Name())
		}
	}
	if len(is) != len(should) {
		t.Fatalf("%s has %d lines, want %d: run go test ./runtime -run %s -update", file, len(is), len(should), t.Name())
	}
}

// TestEveryCodeIsTold: each code has a situation that ends with it, its section shows no other, and nothing is told
// that is not played.
func TestEveryCodeIsTold(t *testing.T) {
	data, err := os.ReadFile(errorsFile)
	if err != nil {
		t.Fatal(err)
	}
	codes := map[string]effects.Code{}
	for _, s := range situations() {
		codes[s.name] = s.code
	}
	shown := map[string]bool{}
	for _, m := range docMark.FindAllStringSubmatch(string(data), -1) {
		if _, ok := codes[strings.TrimSuffix(m[1], withLogs)]; !ok || shown[m[1]] {
			t.Errorf("nobody plays %q, or it is shown twice", m[1])
		}
		shown[m[1]] = true
	}
	for name := range readTranscripts(t) {
		if _, ok := codes[name]; !ok {
			t.Errorf("%s: nobody plays %q", transcriptFile, name)
		}
	}
	for code := range effects.Code(effects.CodeCount) {
		_, section, ok := strings.Cut(string(data), fmt.Sprintf("\n### `%s`\n", code))
		section, _, _ = strings.Cut(section, "\n### ")
		section, _, _ = strings.Cut(section, "\n## ")
		played := slices.ContainsFunc(situations(), func(s situation) bool { return s.code == code })
		if !ok || !played {
			t.Errorf("%s has no section of %v, or nobody plays it", errorsFile, code)
		}
		for _, m := range docMark.FindAllStringSubmatch(section, -1) {
			if codes[strings.TrimSuffix(m[1], withLogs)] != code {
				t.Errorf("%s shows %q in the section of %v", errorsFile, m[1], code)
			}
		}
	}
}

// openNode opens a node whose log is told under name.
func (x *transcript) openNode(name string, cfg *config.Config, opts ...runtime.Option) *runtime.Node {
	x.Helper()
	n, err := x.tryOpenNode(name, cfg, opts...)
	if err != nil {
		x.Fatal(err)
	}
	life := n.Incarnation()
	x.replaceText(fmt.Sprintf("%x", life[:4]), strings.Repeat(name[:1], 2)+"00"+strings.Repeat(name[:1], 4))
	if cfg.Role == config.Receiver {
		x.setReceiver(peerOf(n))
	}
	return n
}

func (x *transcript) tryOpenNode(name string, cfg *config.Config, opts ...runtime.Option) (*runtime.Node, error) {
	log := &logBuffer{written: make(chan struct{}, 1)}
	handler := slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn, ReplaceAttr: func(_ []string,
		a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})
	opts = append([]runtime.Option{runtime.WithLogger(slog.New(handler)), runtime.WithControl(zmq.Config{}.Opener()),
		runtime.WithPlane(shm.Name, shm.Open), runtime.WithPlane(tcp.Name, tcp.Open)}, opts...)
	n, err := runtime.Open(x.Context(), cfg, opts...)
	if err == nil {
		x.nodes = append(x.nodes, loggedNode{Node: n, name: name, log: log})
	}
	return n, err
}

// closeAll ends the nodes, those who are asked first, and tells their logs, each cause once. A node may see another one
// close, or be closed before it does. So what is new since then is told only if it was before: who wants a new line
// told waits for it, with logs.
func (x *transcript) closeAll() {
	for _, f := range x.cleanups {
		f()
	}
	slices.SortStableFunc(x.nodes, func(a, b loggedNode) int { return strings.Compare(a.name, b.name) }) // "receiver" first.
	until := make([]int, len(x.nodes))
	for i, n := range x.nodes {
		until[i] = len(n.log.String())
	}
	for _, n := range x.nodes {
		if err := n.Close(within(x.T)); err != nil && runtime.CodeOf(err) != effects.Expired {
			x.Errorf("close: %v", err)
		}
	}
	for i, n := range x.nodes {
		seen, read := map[string]bool{}, 0
		for line := range strings.Lines(n.log.String()) {
			closing := read >= until[i]
			read += len(line)
			line, _, _ = strings.Cut(strings.TrimSpace(line), " more_since_last_line=") // Time decides how many.
			cause, _, _ := strings.Cut(line, "\" ")
			if !seen[cause] && (!closing || strings.Contains(x.previous, cause)) {
				x.addLine("log of the "+n.name+": ", line)
			}
			seen[cause] = true
		}
	}
}

// addError tells the text of an error. The first is the situation's.
func (x *transcript) addError(err error) {
	x.Helper()
	if err == nil {
		x.addLine("", "no error")
		return
	}
	if x.firstErr == nil {
		x.firstErr = err
	}
	x.addLine("", err.Error())
}

func (x *transcript) addLine(prefix, text string) { x.lines = append(x.lines, prefix+text) }

// replaceText lets want stand for what chance chose.
func (x *transcript) replaceText(chance, want string) {
	x.replacements = append(x.replacements, chance, want)
}

// setReceiver is where the receiver of the situation is, in all that is told.
func (x *transcript) setReceiver(p runtime.Peer) {
	x.replacePort(p.InitPort, 7300)
	x.replacePort(p.AllocPort, 7301)
}

// addCleanup has something done before the nodes are closed.
func (x *transcript) addCleanup(f func()) { x.cleanups = append(x.cleanups, f) }

func (x *transcript) replacePort(chance, want uint16) {
	if chance != 0 {
		x.replaceText(fmt.Sprintf(":%d", chance), fmt.Sprintf(":%d", want))
		x.replaceText(fmt.Sprintf("port %d", chance), fmt.Sprintf("port %d", want))
		x.replaceText(fmt.Sprintf("port=%d", chance), fmt.Sprintf("port=%d", want))
	}
}

// remainingBackoff is what is left of the two seconds of pd_alloc_fail_backoff_ttl.
var remainingBackoff = regexp.MustCompile(`\b1\.[0-9]+s\b`)

// render is all that was told, as a block of a document in lines of 120 columns.
func (x *transcript) render() string {
	constant := strings.NewReplacer(x.replacements...)
	var b strings.Builder
	for _, line := range x.lines {
		column := 0
		for _, word := range strings.Fields(constant.Replace(remainingBackoff.ReplaceAllString(line, "2s"))) {
			width := utf8.RuneCountInString(word)
			switch {
			case column > 0 && column+1+width > 116:
				b.WriteString("\n    ")
				column = 4
			case column > 0:
				b.WriteByte(' ')
				column++
			}
			b.WriteString(word)
			column += width
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// putChunk puts one chunk and tells how that ends.
func (x *transcript) putChunk(s *runtime.Node, to runtime.Peer, patience time.Duration) {
	x.Helper()
	pages := mustReserve(x.T, s, 1)
	_, err := s.Sender().Put(within(x), runtime.Put{Peer: to, Request: "r", Keys: keysOf("told", 1), Pages: pages,
		Timeout: patience})
	x.addError(err)
	mustRelease(x.T, pages)
}

// mustPutChunk puts one chunk that arrives.
func (x *transcript) mustPutChunk(s, r *runtime.Node) runtime.PutResult {
	x.Helper()
	pages := mustReserve(x, s, 1)
	put := runtime.Put{Peer: peerOf(r), Request: "r", Keys: keysOf("told", 1), Pages: pages}
	res, err := s.Sender().Put(within(x), put)
	if err != nil {
		x.Fatal(err)
	}
	mustRelease(x, pages)
	return res
}

// awaitLog waits until the log of a node has such a line.
func (x *transcript) awaitLog(name, line string) {
	x.Helper()
	for _, n := range x.nodes {
		if n.name == name {
			n.log.awaitLine(x, line)
		}
	}
}
