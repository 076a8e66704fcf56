package runtime_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/shm"
	"github.com/kvferry/kvferry/runtime/plane/tcp"
)

// A defect is a data plane with one: it can complete what nobody asked for, or break a promise while it carries out
// an effect. Each is an assertion that fails, the first in the machine's own step.
type defect struct {
	plane.Plane
	sink       plane.Sink
	onTransfer bool
	gate       chan struct{} // if there is one, Close hangs as long as this is open, as if a lock had been kept
}

func (d *defect) Close(ctx context.Context) error {
	if d.gate != nil {
		<-d.gate
	}
	return d.Plane.Close(ctx)
}

func (d *defect) completesTwice() { d.sink.Post(&effects.SendDone{Corr: 1 << 40, Code: effects.OK}) }

func (d *defect) Transfer(e *effects.Transfer) {
	if d.onTransfer {
		panic("BUG: this plane does not transfer")
	}
	d.Plane.Transfer(e)
}

// openAlone is a node that fails alone, and the defect in it. What is said of it is written to log.
func openAlone(t *testing.T, cfg *config.Config, reports string, log io.Writer) (*runtime.Node, *defect) {
	t.Helper()
	d := &defect{}
	faulty := func(open plane.Opener) plane.Opener {
		return func(ctx context.Context, env plane.Env) (plane.Plane, error) {
			p, err := open(ctx, env)
			d.Plane, d.sink = p, env.Sink
			return d, err
		}
	}
	planes := map[string]plane.Opener{shm.Name: shm.Open, tcp.Name: tcp.Config{Host: "127.0.0.1"}.Open}
	n, err := runtime.Open(t.Context(), cfg,
		runtime.WithFailureContainment(runtime.FailureContainment{ReportDir: reports, ReportsMax: 2, TraceEvents: 64}),
		runtime.WithLogger(slog.New(slog.NewTextHandler(log, nil))), runtime.WithControl(zmq.Config{}.Opener()),
		runtime.WithPlane(cfg.Channel.String(), faulty(planes[cfg.Channel.String()])))
	if err != nil {
		t.Fatal(err)
	}
	return n, d
}

// wantFailed waits for a rank's failure, and checks what it says and does from then on.
func wantFailed(t *testing.T, n *runtime.Node, said string) *runtime.Failure {
	t.Helper()
	select {
	case <-n.Failed():
	case <-within(t).Done():
		t.Fatal("the rank has not failed")
	}
	var f *runtime.Failure
	if !errors.As(n.Err(), &f) || !strings.Contains(f.Message, said) || f.ReportErr != nil {
		t.Fatalf("failed as %v, want %q", n.Err(), said)
	}
	_, err := n.Receiver().Contains(within(t), keysOf("any", 1))
	wantCode(t, err, effects.Failed)
	_, err = n.Sender().Reserve(within(t), 1)
	wantCode(t, err, effects.Failed)
	_, err = n.Drain(within(t))
	wantCode(t, err, effects.Failed)
	return f
}

// closeFailed closes a rank that has failed, which gives no memory back.
func closeFailed(t *testing.T, n *runtime.Node) {
	t.Helper()
	for range 2 {
		err := n.Close(within(t))
		wantCode(t, err, effects.Failed)
		if f := (*runtime.Failure)(nil); !errors.As(err, &f) {
			t.Errorf("close: %v; it does not say how the rank failed", err)
		}
	}
}

func putOne(t *testing.T, s, r *runtime.Node, name string) error {
	t.Helper()
	pages := mustReserve(t, s, 1)
	defer mustRelease(t, pages)
	fill(t, pages, keysOf(name, 1))
	put := runtime.Put{Peer: peerOf(r), Request: name, Keys: keysOf(name, 1), Pages: pages, Last: true}
	_, err := s.Sender().Put(within(t), put)
	return err
}

func wantHere(t *testing.T, r *runtime.Node, name string) {
	t.Helper()
	got, err := r.Receiver().Get(within(t), runtime.Get{Request: name, Keys: keysOf(name, 1)})
	if err != nil {
		t.Fatal(err)
	}
	wantContent(t, got, keysOf(name, 1), pageBytes)
	mustRelease(t, got)
}

// One of two receiving ranks of a process fails in the middle of everything. Its peer is told, the other rank and
// that peer go on.
func TestAReceivingRankFailsAlone(t *testing.T) {
	for _, channel := range []string{"shm", "tcp"} {
		t.Run(channel, func(t *testing.T) {
			pools := mappedPools(t)
			var log bytes.Buffer
			reports := filepath.Join(t.TempDir(), "reports")
			at := reservedPeer(t)
			failing, bad := openAlone(t, receiverConfig(t, channel, &at), reports, &log)
			other, s := open(t, receiverConfig(t, channel, nil)), open(t, senderConfig(t, channel, effects.Addr{}))

			t.Log("# it holds a chunk, an engine waits for another, a sender waits for pages")
			for i := range 8 {
				if err := putOne(t, s, failing, fmt.Sprint("held", i)); err != nil {
					t.Fatal(err)
				}
			}
			got, err := failing.Receiver().Get(within(t), runtime.Get{Keys: keysOf("held0", 1)})
			if err != nil {
				t.Fatal(err)
			}
			waiting, put := make(chan error), make(chan error)
			go func() {
				_, err := failing.Receiver().Get(within(t), runtime.Get{Keys: keysOf("never", 1), Timeout: limit})
				waiting <- err
			}()
			go func() { put <- putOne(t, s, failing, "waits") }()
			for stop := within(t); failing.Stats().PendingRequests == 0 || failing.Stats().Gets < 2; {
				if stop.Err() != nil {
					t.Fatal("nobody waits")
				}
			}
			bad.completesTwice()
			f := wantFailed(t, failing, "BUG: an effect was completed twice, or never asked for")

			t.Log("# everybody is told")
			wantCode(t, <-waiting, effects.Failed)
			if code := runtime.CodeOf(<-put); code != effects.PeerLost && code != effects.Unreachable {
				t.Errorf("the peer's put ended as %v", code)
			}

			t.Log("# its pages are held: what they hold stays, and whoever is late meets memory")
			held, err := got.Bytes(0)
			if err != nil {
				t.Fatal(err)
			}
			wantCode(t, got.Release(within(t)), effects.Failed)
			closeFailed(t, failing)
			if !isContent(held, keysOf("held0", 1)[0]) {
				t.Error("what the failed rank held has changed")
			}
			contentOf(held, "late")

			t.Log("# the other rank goes on, and one in the place of the failed one is found by the same peer")
			if err := putOne(t, s, other, "goes on"); err != nil {
				t.Error(err)
			}
			wantHere(t, other, "goes on")
			again := open(t, receiverConfig(t, channel, &at))
			if err := putOne(t, s, again, "again"); err != nil {
				t.Error(err)
			}
			wantHere(t, again, "again")
			for _, n := range []*runtime.Node{s, other, again} {
				wantNothingHeld(t, n)
				mustClose(t, n)
			}
			if now := mappedPools(t); now != pools+1 {
				t.Errorf("%d pools are mapped, want %d: those of before and the failed rank's", now, pools+1)
			}
			wantReport(t, f, reports, "SendDone")
			if lines := log.String(); strings.Count(lines, "level=ERROR") != 1 || !strings.Contains(lines, f.Report) {
				t.Errorf("the log says %q, want one error that names %s", lines, f.Report)
			}
		})
	}
}

// wantReport reads a report, as a program would, and looks for what must not be in it.
func wantReport(t *testing.T, f *runtime.Failure, dir, event string) {
	t.Helper()
	if filepath.Dir(f.Report) != dir {
		t.Errorf("the report is %q, want one in %s", f.Report, dir)
	}
	text, err := os.ReadFile(f.Report)
	if err != nil {
		t.Fatal(err)
	}
	var r struct {
		Format     int
		Node, Said string
		Stack      []string
		Event      struct{ Kind string }
		Trace      []map[string]any
		Stats      struct{ PagesTotal int }
		State      struct{ Cfg, Pools map[string]any }
	}
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	if r.Format != 1 || r.Node != f.Node || r.Said != f.Message || r.Event.Kind != event ||
		r.Stats.PagesTotal != 8 || len(r.Stack) == 0 || len(r.State.Cfg) == 0 || len(r.State.Pools) == 0 ||
		len(r.Trace) == 0 || r.Trace[len(r.Trace)-1]["event"] != event {
		t.Errorf("the report says too little: %.2000s", text)
	}
	if r.State.Cfg["Key"] != "left out" {
		t.Errorf("the key of the rank is said to be %v", r.State.Cfg["Key"])
	}
	if info, err := os.Stat(f.Report); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("who may read it: %v, %v", info.Mode(), err)
	}
}

// A sending rank fails while it is about to move a batch: its put ends, its memory is the engine's again when the
// planes have closed, and not before; its receiver's Get ends as one whose sender is gone.
func TestASendingRankFailsAlone(t *testing.T) {
	reports := t.TempDir()
	s, bad := openAlone(t, senderConfig(t, "shm", effects.Addr{}), reports, io.Discard)
	r := open(t, receiverConfig(t, "shm", nil))
	pages := mustReserve(t, s, 2)
	fill(t, pages, keysOf("sent", 2))
	bad.onTransfer, bad.gate = true, make(chan struct{})
	put := runtime.Put{Peer: peerOf(r), Request: "r", Keys: keysOf("sent", 2), Pages: pages, Last: true}
	res, err := s.Sender().Put(within(t), put)
	wantCode(t, err, effects.Failed)
	f := wantFailed(t, s, "BUG: this plane does not transfer")
	if !strings.Contains(f.Location, "Transfer") || !strings.Contains(f.Location, "containment_test.go") {
		t.Errorf("it failed at %q", f.Location)
	}
	t.Log("# as long as a plane may be at the memory nobody has it back, and nobody waits for that")
	wantContent(t, pages, keysOf("sent", 2), pageBytes)
	wantCode(t, pages.Release(within(t)), effects.Failed)
	wantCode(t, s.Close(over()), effects.Cancelled)
	select {
	case <-res.Returned():
		t.Error("the put's memory is back while a plane is at it")
	default:
	}
	close(bad.gate)
	select {
	case <-res.Returned():
	case <-within(t).Done():
		t.Error("the planes have closed, and the put's memory is not back")
	}
	closeFailed(t, s)
	t.Log("# the receiver revokes what it granted, and has all of its pages")
	for stop := within(t); ; {
		if n := r.Stats(); n.PagesFree == n.PagesTotal {
			break
		}
		if stop.Err() != nil {
			t.Fatalf("it holds pages for a rank that is gone: %+v", r.Stats())
		}
	}
	mustClose(t, r)
}

// What a rank has lent is still there when it has failed, but nobody is told so by a peer that is gone: the fetch is
// a miss.
func TestARankThatLendsFailsAlone(t *testing.T) {
	for _, channel := range []string{"shm", "tcp"} {
		t.Run(channel, func(t *testing.T) {
			s, bad := openAlone(t, pullSenderConfig(t, channel, effects.Addr{}), "", io.Discard)
			r := open(t, delayedConfig(t, channel, 2))
			pages := mustReserve(t, s, 4)
			keys := keysOf("lent", 4)
			fill(t, pages, keys)
			put := runtime.Put{Peer: peerOf(r), Request: "r", Keys: keys, Pages: pages, Last: true}
			res, err := s.Sender().Put(within(t), put)
			if err != nil {
				t.Fatal(err)
			}
			scatter := func(_ context.Context, first int, chunks [][]byte) error {
				for i, chunk := range chunks {
					if !isContent(chunk, keys[first+i]) {
						t.Errorf("chunk %d has wrong bytes", first+i)
					}
				}
				if first == 0 {
					bad.completesTwice()
					<-s.Failed()
				}
				return nil
			}
			taken, err := r.Receiver().Fetch(within(t), runtime.Fetch{Request: "r", Keys: keys, Scatter: scatter})
			if err == nil && taken != 4 || err != nil && taken == 4 {
				t.Errorf("%d were taken, %v", taken, err)
			}
			switch runtime.CodeOf(err) {
			case effects.OK, effects.PeerLost, effects.Withdrawn, effects.Unreachable, effects.NotFound:
			default:
				t.Errorf("the fetch ended as %v", err)
			}
			select {
			case <-res.Returned(): // What is still mapped by the reader opens nothing any more.
			case <-within(t).Done():
				t.Error("the planes have closed, and the put's memory is not back")
			}
			closeFailed(t, s)
			mustClose(t, r)
		})
	}
}

// By default an assertion ends the process. It is told so by its own end.
func TestAnAssertionEndsTheProcess(t *testing.T) {
	const inside = "KVFERRY_RUNTIME_PANICS"
	if os.Getenv(inside) != "" {
		d := &defect{}
		cfg := senderConfig(t, "shm", effects.Addr{})
		_, err := runtime.Open(t.Context(), cfg, runtime.WithControl(zmq.Config{}.Opener()),
			runtime.WithPlane(shm.Name, func(ctx context.Context, env plane.Env) (plane.Plane, error) {
				p, err := shm.Open(ctx, env)
				d.Plane, d.sink = p, env.Sink
				return d, err
			}))
		if err != nil {
			t.Fatal(err)
		}
		d.completesTwice()
		<-within(t).Done()
		return
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), inside+"=1")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "panic: BUG: an effect was completed twice, or never asked for") {
		t.Errorf("%v: %.500s", err, out)
	}
}

// A rank that fails while it closes ends the Close, and keeps its memory.
func TestARankFailsWhileItCloses(t *testing.T) {
	n, bad := openAlone(t, senderConfig(t, "shm", effects.Addr{}), "", io.Discard)
	pages := mustReserve(t, n, 1)
	held, err := pages.Bytes(0)
	if err != nil {
		t.Fatal(err)
	}
	closing := make(chan error)
	go func() { closing <- n.Close(within(t)) }() // It drains, for as long as the pages are out.
	for stop := within(t); ; {
		if _, err := n.Receiver().Contains(within(t), keysOf("any", 1)); runtime.CodeOf(err) == effects.Draining {
			break
		}
		if stop.Err() != nil {
			t.Fatal("it does not drain")
		}
	}
	bad.completesTwice()
	wantCode(t, <-closing, effects.Failed)
	contentOf(held, "still here")
	wantFailed(t, n, "BUG")
}

// What is asked for is checked before anything is opened.
func TestFailAloneIsChecked(t *testing.T) {
	for _, f := range []runtime.FailureContainment{{ReportsMax: -1}, {TraceEvents: -1}, {TraceEvents: 1 << 21},
		{ReportDir: "/dev/null/reports"}} {
		n, err := runtime.Open(t.Context(), senderConfig(t, "shm", effects.Addr{}), runtime.WithFailureContainment(f),
			runtime.WithControl(zmq.Config{}.Opener()), runtime.WithPlane(shm.Name, shm.Open))
		if err == nil {
			mustClose(t, n)
		}
		wantCode(t, err, effects.Invalid)
	}
}
