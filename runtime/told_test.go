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

var updateTold = flag.Bool("update", false,
	"write what situations tell into docs/errors.md and testdata/told.txt instead of comparing")

const (
	errorsFile = "../docs/errors.md"
	toldFile   = "testdata/told.txt"
	withLogs   = ", with logs"
)

// toldMark is a place of docs/errors.md that shows what a situation tells: its errors, or everything, withLogs.
var toldMark = regexp.MustCompile(`(?s)<!-- told: ([^\n]+?) -->\n(.*?)<!-- /told -->\n`)

// A situation is something that a user meets. It is played on real nodes, and what he reads of it stands in
// testdata/told.txt: the texts of errors, and the lines of both ends' logs from warnings on. Of some, docs/errors.md
// shows it.
type situation struct {
	name string
	code effects.Code // of the first error that it tells, whose text is shown
	play func(x *told)
}

// told is what a situation tells.
type told struct {
	*testing.T
	lines  []string
	first  error // told at all
	nodes  []toldNode
	last   []func() // before the nodes are closed
	become []string // pairs: what chance chose, and what stands for it
	was    string   // what the situation told when testdata/told.txt was written, its words one blank apart
}

// A toldNode is a node of a situation, with its log.
type toldNode struct {
	*runtime.Node
	name string
	log  *locked
}

// locked is a buffer that a log writes and a test reads.
type locked struct {
	mu      sync.Mutex
	b       bytes.Buffer
	written chan struct{} // holds one: something was
}

func (l *locked) wait(x *told, line string) {
	x.Helper()
	for ctx := within(x); !strings.Contains(l.String(), line); {
		select {
		case <-l.written:
		case <-ctx.Done():
			x.Fatalf("the log has no %q but\n%s", line, l)
		}
	}
}

func (l *locked) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.written <- struct{}{}:
	default:
	}
	return l.b.Write(b)
}

func (l *locked) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func situations() []situation {
	return slices.Concat(tellsOfCalls, tellsOfPeers, tellsOfFetches, tellsOfNPUs)
}

// TestErrorsAreThoseOfTheDocs plays each situation and compares what it tells with testdata/told.txt, and with
// docs/errors.md.
func TestErrorsAreThoseOfTheDocs(t *testing.T) {
	var mu sync.Mutex
	got := toldBefore(t) // Who is not played says itself why not; there may be no compiler for the software NPU.
	before := map[string]string{}
	for name, text := range got {
		before[name] = strings.Join(strings.Fields(text), " ")
	}
	t.Run("situations", func(t *testing.T) {
		for _, s := range situations() {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				x := &told{T: t, was: before[s.name]}
				s.play(x)
				x.closeAll()
				if code := runtime.CodeOf(x.first); code != s.code {
					t.Errorf("it tells %v (%v), want %v", code, x.first, s.code)
				}
				mu.Lock()
				defer mu.Unlock()
				got[s.name] = x.text()
				t.Logf("\n%s", got[s.name])
			})
		}
	})
	var all strings.Builder
	for _, s := range situations() {
		fmt.Fprintf(&all, "== %s\n%s\n", s.name, got[s.name])
	}
	compareTold(t, toldFile, all.String())
	doc, err := os.ReadFile(errorsFile)
	if err != nil {
		t.Fatal(err)
	}
	compareTold(t, errorsFile, toldMark.ReplaceAllStringFunc(string(doc), func(place string) string {
		mark := toldMark.FindStringSubmatch(place)[1]
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

// toldBefore is what each situation told when testdata/told.txt was written.
func toldBefore(t *testing.T) map[string]string {
	t.Helper()
	data, err := os.ReadFile(toldFile)
	if err != nil && !*updateTold {
		t.Fatal(err)
	}
	was := map[string]string{}
	for _, section := range strings.Split("\n"+string(data), "\n== ")[1:] {
		name, text, _ := strings.Cut(section, "\n")
		was[name] = strings.TrimRight(text, "\n") + "\n"
	}
	return was
}

// compareTold compares a file with what it should hold, or writes that.
func compareTold(t *testing.T, file, want string) {
	t.Helper()
	was, err := os.ReadFile(file)
	if *updateTold {
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
	for _, m := range toldMark.FindAllStringSubmatch(string(data), -1) {
		if _, ok := codes[strings.TrimSuffix(m[1], withLogs)]; !ok || shown[m[1]] {
			t.Errorf("nobody plays %q, or it is shown twice", m[1])
		}
		shown[m[1]] = true
	}
	for name := range toldBefore(t) {
		if _, ok := codes[name]; !ok {
			t.Errorf("%s: nobody plays %q", toldFile, name)
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
		for _, m := range toldMark.FindAllStringSubmatch(section, -1) {
			if codes[strings.TrimSuffix(m[1], withLogs)] != code {
				t.Errorf("%s shows %q in the section of %v", errorsFile, m[1], code)
			}
		}
	}
}

// open opens a node whose log is told under name.
func (x *told) open(name string, cfg *config.Config, opts ...runtime.Option) *runtime.Node {
	x.Helper()
	n, err := x.tryOpen(name, cfg, opts...)
	if err != nil {
		x.Fatal(err)
	}
	life := n.Incarnation()
	x.is(fmt.Sprintf("%x", life[:4]), strings.Repeat(name[:1], 2)+"00"+strings.Repeat(name[:1], 4))
	if cfg.Role == config.Receiver {
		x.at(peerOf(n))
	}
	return n
}

func (x *told) tryOpen(name string, cfg *config.Config, opts ...runtime.Option) (*runtime.Node, error) {
	log := &locked{written: make(chan struct{}, 1)}
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
		x.nodes = append(x.nodes, toldNode{Node: n, name: name, log: log})
	}
	return n, err
}

// closeAll ends the nodes, those who are asked first, and tells their logs, each cause once. A node may see another one
// close, or be closed before it does. So what is new since then is told only if it was before: who wants a new line
// told waits for it, with logs.
func (x *told) closeAll() {
	for _, f := range x.last {
		f()
	}
	slices.SortStableFunc(x.nodes, func(a, b toldNode) int { return strings.Compare(a.name, b.name) }) // "receiver" first.
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
			if !seen[cause] && (!closing || strings.Contains(x.was, cause)) {
				x.say("log of the "+n.name+": ", line)
			}
			seen[cause] = true
		}
	}
}

// err tells the text of an error. The first is the situation's.
func (x *told) err(err error) {
	x.Helper()
	if err == nil {
		x.say("", "no error")
		return
	}
	if x.first == nil {
		x.first = err
	}
	x.say("", err.Error())
}

func (x *told) say(who, what string) { x.lines = append(x.lines, who+what) }

// is lets want stand for what chance chose.
func (x *told) is(chance, want string) { x.become = append(x.become, chance, want) }

// at is where the receiver of the situation is, in all that is told.
func (x *told) at(p runtime.Peer) {
	x.port(p.InitPort, 7300)
	x.port(p.AllocPort, 7301)
}

// after has something done before the nodes are closed.
func (x *told) after(f func()) { x.last = append(x.last, f) }

func (x *told) port(chance, want uint16) {
	if chance != 0 {
		x.is(fmt.Sprintf(":%d", chance), fmt.Sprintf(":%d", want))
		x.is(fmt.Sprintf("port %d", chance), fmt.Sprintf("port %d", want))
		x.is(fmt.Sprintf("port=%d", chance), fmt.Sprintf("port=%d", want))
	}
}

// nearly is what is left of the two seconds of pd_alloc_fail_backoff_ttl.
var nearly = regexp.MustCompile(`\b1\.[0-9]+s\b`)

// text is all that was told, as a block of a document in lines of 120 columns.
func (x *told) text() string {
	constant := strings.NewReplacer(x.become...)
	var b strings.Builder
	for _, line := range x.lines {
		column := 0
		for _, word := range strings.Fields(constant.Replace(nearly.ReplaceAllString(line, "2s"))) {
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

// put puts one chunk and tells how that ends.
func (x *told) put(s *runtime.Node, to runtime.Peer, patience time.Duration) {
	x.Helper()
	pages := mustReserve(x.T, s, 1)
	_, err := s.Sender().Put(within(x), runtime.Put{Peer: to, Request: "r", Keys: keysOf("told", 1), Pages: pages,
		Patience: patience})
	x.err(err)
	mustRelease(x.T, pages)
}

// arrives puts one chunk that arrives.
func (x *told) arrives(s, r *runtime.Node) runtime.PutResult {
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

// logs waits until the log of a node has such a line.
func (x *told) logs(name, line string) {
	x.Helper()
	for _, n := range x.nodes {
		if n.name == name {
			n.log.wait(x, line)
		}
	}
}
