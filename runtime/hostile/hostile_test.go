//go:build cgo && linux

package hostile_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"github.com/kvferry/kvferry/runtime/control/zmq/zmtp"
)

var (
	asJSON = flag.Bool("json", false, "print the figures as JSON")
	inFull = flag.Bool("full", false, "do the worst, and measure longer")
	table  []figures
)

// figures of one fault, as the table has them.
type figures struct {
	Fault      string
	Puts       int     // of the honest sender, while it lasted
	Failed     int     // of those
	Wrong      int     // bytes
	Ratio      float64 // p99 of a put to that before the fault, in this run
	MemoryMiB  float64 // the victim's peak above its quiet one
	Files      int     // of the victim, at most seen
	FilesMax   int
	CPUSeconds float64 // of the victim, the honest puts' share included
	Held       int     // pages at the end
	Lines      int     // of the log that name the fault
	AgainMS    float64 // the first put after the fault
}

// A fault is done to a victim. It returns when it has done its worst, and is over when undo was called.
type fault struct {
	name  string
	files int
	// says is what a line of the log must say.
	says string
	// memoryMiB bounds what the fault may cost.
	memoryMiB float64
	full      int // how much of it, in full
	short     int
	strike    func(t testing.TB, v *victim, amount int) (undo func())
}

// filesKept are those that the node's other parts must still be able to open.
const filesKept = 8

// What two messages and their copies, connections and the collector's slack take at most; an attack sends far more.
const memoryMiB = 48

var faults = []fault{
	{name: "endless multipart", files: 256, says: "message without end", memoryMiB: memoryMiB, full: 512, short: 64, strike: endless},
	{name: "silent connections", files: 256, says: "said nothing", memoryMiB: memoryMiB, full: 2000, short: 400, strike: silent},
	{name: "half a handshake", files: 256, says: "said nothing", memoryMiB: memoryMiB, full: 2000, short: 400, strike: half},
	{name: "idle after the handshake", files: 256, says: "idle connection", memoryMiB: memoryMiB, full: 1000, short: 300, strike: idle},
	{name: "peers that come and go", files: 256, memoryMiB: memoryMiB, full: 1000, short: 200, strike: comeAndGo},
	{name: "few files", files: 64, says: "may open few files", memoryMiB: memoryMiB, full: 1000, short: 200, strike: silent},
}

func TestHostile(t *testing.T) {
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) { f.play(t) })
	}
	t.Cleanup(report)
}

func (f *fault) play(t *testing.T) {
	amount, rounds := f.short, 30
	if *inFull {
		amount, rounds = f.full, 300
	}
	v := startVictim(t, f.files, nil)
	h := newHonest(t, v)
	h.puts(3) // The first one shakes hands.
	quiet := h.puts(rounds)
	before := v.says("")
	undo := f.strike(t, v, amount)
	during := h.puts(rounds)
	worst := v.says("")
	undo()
	began := time.Now()
	h.puts(1)
	x := figures{Fault: f.name, Puts: rounds, Failed: h.failed, Wrong: h.wrong, Ratio: float64(p99(during)) / float64(p99(quiet)),
		MemoryMiB: float64(worst.RSS-before.RSS) / 1024, Files: worst.Files, FilesMax: f.files,
		CPUSeconds: (worst.CPU - before.CPU).Seconds(), Held: h.last.Held, Lines: v.log.count(f.says), AgainMS: ms(time.Since(began))}
	if f.says == "" {
		x.Lines = 0
	}
	table = append(table, x)
	switch {
	case x.Failed > 0 || x.Wrong > 0:
		t.Errorf("%d of %d honest puts failed, %d bytes are wrong: %s", x.Failed, x.Puts, x.Wrong, h.why)
	case x.MemoryMiB > f.memoryMiB:
		t.Errorf("it took %.0f MiB, more than %.0f", x.MemoryMiB, f.memoryMiB)
	case x.Files > f.files-filesKept:
		t.Errorf("%d of %d files are open", x.Files, f.files)
	case x.Held != 0:
		t.Errorf("%d pages are held", x.Held)
	case f.says != "" && (x.Lines == 0 || x.Lines > 3): // One for each cause and channel, and what was left out at its end.
		t.Errorf("%d lines say %q; the log is:\n%s", x.Lines, f.says, v.log.text.String())
	}
}

// honest is a sender that goes on whatever happens, and what became of its puts.
type honest struct {
	t             testing.TB
	v             *victim
	n             *runtime.Node
	count         int
	failed, wrong int
	why           string
	last          answer
}

func newHonest(t testing.TB, v *victim) *honest {
	t.Helper()
	n, err := open("sender", "pd_skip_proxy_notification: true\n", zmq.Config{}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return &honest{t: t, v: v, n: n}
}

// puts returns how long each took.
func (h *honest) puts(rounds int) (times []time.Duration) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for range rounds {
		h.count++
		key := fmt.Sprintf("r%d@1@0@1%x@bfloat16", h.count, h.count)
		pages, err := h.n.Sender().Reserve(ctx, 1)
		if err != nil {
			h.t.Fatal(err)
		}
		b, err := pages.Host(0)
		if err != nil {
			h.t.Fatal(err)
		}
		copy(b, content(key, len(b)))
		began := time.Now()
		_, err = h.n.Sender().Put(ctx, runtime.Put{Peer: h.v.peer, Request: fmt.Sprint("r", h.count), Keys: []string{key}, Pages: pages, Last: true})
		times = append(times, time.Since(began))
		if err != nil {
			h.failed++
			h.why = err.Error()
		} else if h.last = h.v.says(key); h.last.Hits != 1 {
			h.failed++
			h.why = "it did not arrive: " + h.last.Problems
		}
		h.wrong += h.last.Wrong
		if err := pages.Release(ctx); err != nil {
			h.t.Fatal(err)
		}
	}
	return times
}

func p99(times []time.Duration) time.Duration {
	slices.Sort(times)
	return times[len(times)*99/100]
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func report() {
	if *asJSON {
		_ = json.NewEncoder(os.Stdout).Encode(table)
		return
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "fault\tputs\tfailed\twrong bytes\tp99 to quiet\tmemory MiB\tfiles\tof\tcpu s\theld\tlines\tagain ms")
	for _, x := range table {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%.2f\t%.1f\t%d\t%d\t%.2f\t%d\t%d\t%.1f\n", x.Fault, x.Puts, x.Failed, x.Wrong, x.Ratio, x.MemoryMiB,
			x.Files, x.FilesMax, x.CPUSeconds, x.Held, x.Lines, x.AgainMS)
	}
	_ = w.Flush()
}

func dial(t testing.TB, v *victim) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp4", net.JoinHostPort(v.peer.Host, fmt.Sprint(v.peer.InitPort)))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func hello() []byte { return zmtp.AppendReady(zmtp.AppendGreeting(nil), "REQ") }

// endless sends amount MiB of one message.
func endless(t testing.TB, v *victim, amount int) (undo func()) {
	c := dial(t, v)
	_, _ = c.Write(hello())
	go func() { _, _ = io.Copy(io.Discard, c) }()
	frame := zmtp.AppendFrame(nil, make([]byte, 64<<10), true)
	for range amount << 20 / len(frame) {
		if _, err := c.Write(frame); err != nil {
			break
		}
	}
	return func() { _ = c.Close() }
}

func crowd(t testing.TB, v *victim, amount int, word []byte) (undo func()) {
	var all []net.Conn
	for range amount {
		c := dial(t, v)
		_, _ = c.Write(word)
		if all = append(all, c); len(all) > 500 { // Our own files are bounded, too.
			_ = all[0].Close()
			all = all[1:]
		}
	}
	return func() {
		for _, c := range all {
			_ = c.Close()
		}
	}
}

func silent(t testing.TB, v *victim, amount int) func() { return crowd(t, v, amount, nil) }

func half(t testing.TB, v *victim, amount int) func() { return crowd(t, v, amount, hello()[:40]) }

func idle(t testing.TB, v *victim, amount int) func() { return crowd(t, v, amount, hello()) }

func comeAndGo(t testing.TB, v *victim, amount int) func() {
	for range amount {
		c := dial(t, v)
		_, _ = c.Write(hello())
		_, _ = io.ReadFull(c, make([]byte, zmtp.GreetingBytes))
		_ = c.Close()
	}
	return func() {}
}

// A log that takes nothing, of a node that strangers keep busy with lines.
func TestLogThatBlocks(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() }) // After the victim's end.
	fill(t, w)
	v := startVictim(t, 256, w)
	_ = w.Close() // It has its own end.
	h := newHonest(t, v)
	for range 300 {
		c := dial(t, v)
		_, _ = c.Write([]byte("GET / HTTP/1.1\r\n"))
		_ = c.Close()
	}
	h.puts(20)
	if h.failed > 0 || h.wrong > 0 {
		t.Errorf("%d puts failed, %d bytes wrong: %s", h.failed, h.wrong, h.why)
	}
	go func() { _, _ = io.Copy(io.Discard, r) }()
}

// fill leaves no room in a pipe.
func fill(t testing.TB, w *os.File) {
	t.Helper()
	raw, err := w.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) {
		for err = error(nil); err == nil; {
			_, err = syscall.Write(int(fd), make([]byte, 512))
		}
	}); err != nil {
		t.Fatal(err)
	}
}

// A name server that says nothing, and then something else than before.
func TestNames(t *testing.T) {
	v := startVictim(t, 256, nil)
	var moved atomic.Bool
	n, err := open("sender", "pd_skip_proxy_notification: true\n", zmq.Config{NameTimeout: 50 * time.Millisecond,
		Lookup: func(ctx context.Context, _, host string) ([]netip.Addr, error) {
			if host == "silent.example" {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			if moved.Load() {
				return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
			}
			return []netip.Addr{netip.MustParseAddr("127.0.0.9")}, nil
		}}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = n.Close(context.Background()) }()
	h := &honest{t: t, v: v, n: n}
	h.puts(5)
	put := func(host string) effects.Code {
		pages, err := n.Sender().Reserve(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = pages.Release(context.Background()) }()
		at := v.peer
		at.Host = host
		_, err = n.Sender().Put(t.Context(), runtime.Put{Peer: at, Request: host, Keys: []string{host + "@1@0@1a@bfloat16"}, Pages: pages})
		return runtime.CodeOf(err)
	}
	ended := make(chan effects.Code)
	go func() { ended <- put("silent.example") }()
	h.puts(5)
	if code := <-ended; code != effects.Unreachable {
		t.Errorf("a name that nobody knows: %s", code)
	}
	if code := put("decode.example"); code != effects.Unreachable {
		t.Errorf("before it moved: %s", code)
	}
	moved.Store(true)
	if code := put("decode.example"); code != effects.OK {
		t.Errorf("after it moved: %s", code)
	}
	if h.failed > 0 || h.wrong > 0 {
		t.Errorf("%d puts failed, %d bytes wrong: %s", h.failed, h.wrong, h.why)
	}
}
