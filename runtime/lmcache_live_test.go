//go:build linux

package runtime_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control/reserve"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"github.com/kvferry/kvferry/runtime/directory"
	"github.com/kvferry/kvferry/runtime/internal/proctest"
)

// LMCache's own worker, P2P backend and controller run here out of its wheel, in processes of their own
// (tools/lmcache/live.py). `make lmcache-oracle` installs them.

type lmcache struct {
	*proctest.Process
	init uint16 // where an instance is introduced to
}

func startLMCache(t *testing.T, words ...string) *lmcache {
	t.Helper()
	python := os.Getenv("KVFERRY_LMCACHE")
	if python == "" {
		t.Skip("KVFERRY_LMCACHE names no python that has lmcache; make lmcache-oracle installs one")
	}
	cmd := exec.Command(python, append([]string{"live.py"}, words...)...)
	cmd.Dir, cmd.Env = "../tools/lmcache", append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	l := &lmcache{Process: proctest.Start(t, cmd)}
	l.reads(t, "ready")
	return l
}

func (l *lmcache) answer(t *testing.T) string {
	t.Helper()
	line, ok := l.NextLine(within(t).Done())
	if !ok {
		t.Fatal("LMCache does not answer")
	}
	return strings.TrimSpace(string(line))
}

func (l *lmcache) reads(t *testing.T, want string) {
	t.Helper()
	if got := l.answer(t); got != want {
		t.Errorf("LMCache says %q, want %q", got, want)
	}
}

// ask sends one request. Of keys an instance knows the hashes.
func (l *lmcache) ask(t *testing.T, request string, hashes ...int) string {
	t.Helper()
	l.WriteLine(request + " " + strings.Trim(fmt.Sprint(hashes), "[]"))
	return l.answer(t)
}

// finds waits until an instance's worker is told who has how many of these chunks.
func (l *lmcache) finds(t *testing.T, instance string, hits int, at uint16, hashes ...int) {
	t.Helper()
	want := fmt.Sprintf(`["%s", "LocalCPUBackend", %d, "127.0.0.1:%d"]`, instance, hits, at)
	if hits == 0 {
		want = `["", "", 0, ""]`
	}
	for ctx := within(t); ; {
		said := l.ask(t, "lookup", hashes...)
		var list []json.RawMessage
		if err := json.Unmarshal([]byte(said), &list); err != nil || len(list) == 0 {
			t.Fatalf("it is told %s: %v", said, err)
		}
		if string(list[0]) == want {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("it is told %s, want %s", said, want)
		}
	}
}

func reservedPorts(t *testing.T, n int) (ports []uint16) {
	t.Helper()
	for range n {
		p, err := reserve.Open("127.0.0.1")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Close() })
		ports = append(ports, p.Addr().Port)
	}
	return ports
}

func startInstance(t *testing.T, name string, at config.MonitorPorts) *lmcache {
	t.Helper()
	ports := reservedPorts(t, 3)
	l := startLMCache(t, append([]string{"instance", name, "127.0.0.1"},
		strings.Fields(fmt.Sprint(ports[0], at.Pull, at.Reply, ports[1], ports[2]))...)...)
	l.init = ports[1]
	return l
}

// directoryAt serves ports that stay the same, for as long as a test likes.
func directoryAt(t *testing.T, ports []uint16) *directory.Directory {
	t.Helper()
	cfg, err := config.ParseDirectory("directory", fmt.Appendf(nil,
		"controller_host: 127.0.0.1\ncontroller_monitor_ports: {pull: %d, reply: %d, heartbeat: %d}\n",
		ports[0], ports[1], ports[2]), nil)
	if err != nil {
		t.Fatal(err)
	}
	d, err := directory.Open(cfg, zmq.Config{}.Opener(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close(context.Background()) })
	return d
}

// LMCache's workers tell our directory what they admit and evict, and find each other by it. One that has begun anew
// asks them for everything by LMCache's own command, and they tell it by LMCache's own full sync.
func TestLMCacheWorkersUseOurDirectory(t *testing.T) {
	ports := reservedPorts(t, 3)
	d := directoryAt(t, ports)
	a, b := startInstance(t, "a", d.Ports()[0]), startInstance(t, "b", d.Ports()[0])
	a.ask(t, "admit", 1, 2, 3)
	b.finds(t, "a", 3, a.init, 1, 2, 3, 4)
	a.finds(t, "", 0, 0, 1)
	a.ask(t, "evict", 3)
	b.finds(t, "a", 2, a.init, 1, 2, 3, 4)
	b.ask(t, "admit", 7)
	a.finds(t, "b", 1, b.init, 7)
	if err := d.Close(within(t)); err != nil {
		t.Fatal(err)
	}
	_ = directoryAt(t, ports)
	b.finds(t, "a", 2, a.init, 1, 2, 3, 4)
	a.finds(t, "b", 1, b.init, 7)
	for _, l := range []*lmcache{a, b} {
		for ctx := within(t); l.ask(t, "synced") == "0" && ctx.Err() == nil; {
		}
		if n := l.ask(t, "synced"); n == "0" {
			t.Error("it has told everything, and its freeze did not end")
		}
	}
}

// Our nodes share by LMCache's controller: each byte comes. LMCache's worker finds them by it, too.
func TestNodesUseLMCachesController(t *testing.T) {
	ports := reservedPorts(t, 3)
	startLMCache(t, strings.Fields(fmt.Sprint("controller 127.0.0.1 ", strings.Trim(fmt.Sprint(ports), "[]")))...)
	at := config.MonitorPorts{Pull: ports[0], Reply: ports[1]}
	var nodes [2]*runtime.Node
	for i, name := range []string{"a", "b"} {
		cfg := sharerConfig(t, "shm", name, at)
		cfg.Share.Vanilla = true
		nodes[i] = open(t, cfg)
	}
	owner, reader := nodes[0], nodes[1]
	keys := keysOf("model", 4)
	mustStore(t, owner, keys[:3])
	awaitLocations(t, reader, keys, 3)
	wantShared(t, reader, keys, 3)
	c := startInstance(t, "c", at)
	c.finds(t, "a", 3, peerOf(owner).InitPort, 0x10, 0x11, 0x12, 0x13)
	for _, n := range []*runtime.Node{reader, owner} {
		wantNothingHeld(t, n)
		mustClose(t, n)
	}
}

// Between LMCache's P2P backend and ours all is said that can be said without hardware. It is introduced by its side
// messages, finds our node, and asks it by its own socket: it has shown us no memory that we could write, so it is told
// to introduce itself, does so, and has a miss in the end. The other way round our node asks who cannot answer a
// handshake of any plane of ours: a miss, too. Nothing is left held on either side.
func TestLMCacheInstanceBesideOurNode(t *testing.T) {
	_, at := startDirectory(t)
	theirs := startInstance(t, "theirs", at)
	cfg := sharerConfig(t, "shm", "ours", at)
	cfg.Machine.ReplyTimeout, cfg.Machine.BringTimeout = 3*effects.Second, 8*effects.Second
	node := open(t, cfg)
	keys := keysOf("model", 2)
	mustStore(t, node, keys)
	theirs.finds(t, "ours", 2, peerOf(node).InitPort, 0x10, 0x11)
	if got, want := theirs.ask(t, "get", 0x10, 0x11), "2 found, 0 came, 0 left"; got != want {
		t.Errorf("LMCache's get: %s, want %s", got, want)
	}
	theirs.ask(t, "admit", 0x20)
	other := []string{"model@1@0@20@bfloat16"}
	awaitLocations(t, node, other, 1)
	got, err := node.Sharing().Get(within(t), runtime.SharedGet{Request: "r", Keys: other})
	wantCode(t, err, effects.NotFound)
	if err == nil || !strings.Contains(err.Error(), "LMCache with another transfer_channel") {
		t.Errorf("the get says %v, want what the peer is that does not answer", err)
	}
	mustRelease(t, got)
	wantNothingHeld(t, node)
	mustClose(t, node)
}
