package nodestory

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/identity"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"github.com/kvferry/kvferry/runtime/plane/tcp"
	"github.com/kvferry/kvferry/runtime/recording"
	"github.com/kvferry/kvferry/sim/report"
	"github.com/kvferry/kvferry/sim/trace"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const nodeText = `enable_pd: true
pd_role: %s
transfer_channel: tcp
chunk_size: 16
pd_buffer_size: 1MiB
pd_buffer_device: cpu
%sextra_config:
  kvferry:
    layout: {num_layers: 2, num_kv_heads: 1, head_size: 128, dtype: bfloat16}
    recorder: {dir: %s}
`

func open(t *testing.T, role, more, dir string) *runtime.Node {
	t.Helper()
	cfg, err := config.Parse("test", fmt.Appendf(nil, nodeText, role, more, dir), nil)
	if err != nil {
		t.Fatal(err)
	}
	clear(cfg.InitPorts) // The system chooses.
	clear(cfg.AllocPorts)
	cfg.Machine.Carries = 0 // Small chunks go over the plane, too.
	n, err := runtime.Open(t.Context(), cfg, runtime.WithControl(zmq.Config{}.Opener()),
		runtime.WithPlane(tcp.Name, tcp.Config{Host: "127.0.0.1"}.Open))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// storyOf replays the only recording in a folder.
func storyOf(t *testing.T, dir string) *trace.Trace {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.kvrec"))
	if err != nil || len(names) != 1 {
		t.Fatalf("recordings %v, %v", names, err)
	}
	s := New()
	r, err := recording.Replay(names[0], recording.ReplayOptions{OnStep: s.AddStep})
	if err != nil {
		t.Fatal(err)
	}
	return s.Finish(r)
}

// A put from one real node to another, told from the recordings of both.
func TestStoryOfAPut(t *testing.T) {
	dirs := [2]string{t.TempDir(), t.TempDir()}
	sender := open(t, "sender", "pd_skip_proxy_notification: true\n", dirs[0])
	receiver := open(t, "receiver", "pd_peer_host: 127.0.0.1\npd_peer_init_port: 1\npd_peer_alloc_port: 2\n", dirs[1])
	to := runtime.Peer{Host: "127.0.0.1"}
	for _, s := range receiver.Servers() {
		switch s.Channel { //nolint:exhaustive // A sender needs no other.
		case effects.ChannelInit:
			to.InitPort = s.Addr.Port
		case effects.ChannelAlloc:
			to.AllocPort = s.Addr.Port
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	pages, err := sender.Sender().Reserve(ctx, 2)
	if err != nil {
		t.Fatal(err)
	}
	keys := []string{"m@1@0@a1@bfloat16", "m@1@0@a2@bfloat16"}
	if _, err := sender.Sender().Put(ctx, runtime.Put{Peer: to, Request: "r7", Keys: keys, Pages: pages, Last: true}); err != nil {
		t.Fatal(err)
	}
	for _, release := range []func(context.Context) error{pages.Release, sender.Close, receiver.Close} {
		if err := release(ctx); err != nil {
			t.Fatal(err)
		}
	}

	sent := storyOf(t, dirs[0])
	put := slices.IndexFunc(sent.Commands, func(c trace.Command) bool { return c.Kind == "put" })
	if put < 0 || sent.Commands[put].Code != "ok" || sent.Commands[put].Delivered <= sent.Commands[put].Given ||
		!namesRef(sent, sent.Commands[put].Refs, "request r7") {
		t.Errorf("the commands are %+v, want a put for request r7 that ended ok", sent.Commands)
	}
	if len(sent.Transfers) != 1 || sent.Transfers[0].Code != "ok" || sent.Transfers[0].Settled < sent.Transfers[0].Started {
		t.Errorf("the transfers are %+v, want one that is settled", sent.Transfers)
	}
	ask := slices.IndexFunc(sent.Messages, func(m trace.Message) bool { return m.Kind == "AllocRequest" })
	if ask < 0 || sent.Messages[ask].Arrived < sent.Messages[ask].Sent || !strings.Contains(sent.Messages[ask].Text, keys[1]) {
		t.Errorf("the messages are %+v, want an AllocRequest that was answered", sent.Messages)
	}
	got := storyOf(t, dirs[1])
	if len(got.Grants) != 1 || got.Grants[0].Unusable <= got.Grants[0].From || len(got.Grants[0].Pages) != 2 || got.Grants[0].Read {
		t.Errorf("the grants are %+v, want one for two pages that has ended", got.Grants)
	}
	for _, x := range []*trace.Trace{sent, got} {
		var page bytes.Buffer
		if err := report.Write(&page, x); err != nil || x.Violation != nil || !strings.Contains(page.String(), x.Verdict) {
			t.Errorf("the page: %v, with %+v", err, x.Violation)
		}
		if name := os.Getenv("KVFERRY_STORY"); name != "" { // To look at it.
			if err := report.WriteFile(fmt.Sprintf("%s-%s.html", name, x.Nodes[0].Role), x); err != nil {
				t.Error(err)
			}
		}
	}
}

func namesRef(t *trace.Trace, refs []int, name string) bool {
	return slices.ContainsFunc(refs, func(r int) bool { return t.Refs[r] == name })
}

// A failed assertion is told with the last steps that concerned the same things, and a long recording by its end.
func TestStoryOfAFailure(t *testing.T) {
	s := New()
	var out effects.Effects
	for ticket := effects.Ticket(1); ticket <= eventsMax+10; ticket++ {
		out.Reset()
		out.Deliver(effects.Deliver{Ticket: ticket, Code: effects.OK})
		s.AddStep(effects.Time(ticket), &effects.Command{Ticket: ticket, Body: &engine.Reserve{Count: 1}}, &out)
	}
	out.Reset()
	s.AddStep(eventsMax+100, &effects.Command{Ticket: 1 << 30, Body: &engine.Release{Reserved: eventsMax}}, &out)
	x := s.Finish(&recording.Result{File: "x.kvrec", Node: "0123456789abcdef", Role: "sender", Failed: "BUG: no such page"})
	if len(x.Events) != eventsMax || x.Dropped != eventsMax+10+11 || len(x.Commands) > eventsMax/2+2 {
		t.Errorf("%d events, %d dropped, %d commands", len(x.Events), x.Dropped, len(x.Commands))
	}
	v := x.Violation
	if v == nil || v.Property != "assertion" || v.Story != "BUG: no such page" || len(v.Steps) != 3 {
		t.Fatalf("the violation is %+v, want the command, and the two steps of the ticket that it names", v)
	}
	for i, want := range []string{"the engine gives the command reserve", "the reserve of ticket", "the engine gives the command release"} {
		if got := x.Events[v.Steps[i]].Text; !strings.HasPrefix(got, want) {
			t.Errorf("step %d is %q, want %q", i, got, want)
		}
	}
}

// A story that begins with a checkpoint has things that were begun before it, of which no step tells.
func TestStoryFromACheckpoint(t *testing.T) {
	cfg := rank.Config{Role: rank.RoleBoth, Key: identity.KeyFromSeed(7), Planes: []rank.Plane{{Name: "shm"}},
		Common: rank.Common{Layout: protocol.Layout{Format: protocol.FormatKV2LTD, Dtype: protocol.DtypeHalf,
			Shape: protocol.Shape{Dims: [4]uint32{2, 1, 4, 2}, N: 4}}},
		Memory: rank.Memory{Pages: 16}, Peers: rank.Peers{LocalID: "me"}}
	m, err := rank.New(cfg, 7, 1)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	r, err := recording.Start(m, &cfg, 7, 1, nil, recording.Options{Dir: dir, BytesMax: 64 << 10, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	var out effects.Effects
	step := func(at effects.Time, ev effects.Event) {
		out.Reset()
		r.RecordEvent(at, ev)
		m.Step(at, ev, &out)
		r.RecordEffects(&out)
	}
	step(2, &effects.Command{Ticket: 1, Body: &engine.Reserve{Count: 2}})
	at := effects.Time(3)
	for r.Status().FirstStep == 0 {
		for range 200 {
			step(at, &effects.Received{Conn: 1, Channel: effects.ChannelAlloc, Request: effects.Request(at), Body: []byte("nonsense")})
			at += 1000
		}
		r.Flush(time.Minute)
	}
	step(at, &effects.Command{Ticket: 2, Body: &engine.Release{Reserved: 1}}) // The pages were reserved before the checkpoint.
	r.Close(time.Minute)
	names, err := filepath.Glob(filepath.Join(dir, "*.kvrec"))
	if err != nil {
		t.Fatal(err)
	}
	s := New()
	res, err := recording.Replay(names[0], recording.ReplayOptions{OnStep: s.AddStep})
	if err != nil || res.Before == 0 || res.Diverged != nil || res.Files != len(names) {
		t.Fatalf("%+v, %v", res, err)
	}
	page := filepath.Join(t.TempDir(), "page.html")
	if err := report.WriteFile(page, s.Finish(res)); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(page)
	if err != nil || !bytes.Contains(text, fmt.Appendf(nil, "after step %d", res.Before)) {
		t.Errorf("the page does not say that it begins after step %d: %v", res.Before, err)
	}
}
