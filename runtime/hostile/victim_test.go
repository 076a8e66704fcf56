//go:build cgo && linux

package hostile_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"github.com/kvferry/kvferry/runtime/internal/logtest"
	"github.com/kvferry/kvferry/runtime/plane/shm"
)

// victimFiles in the environment makes the test's binary the node under attack, which may open so many files.
const victimFiles = "KVFERRY_HOSTILE_FILES"

// Orders to a victim beside keys to get.
const (
	takeFiles = "!take files"
	giveFiles = "!give files"
	openMore  = "!open " // and a shortage
)

const nodeText = `enable_pd: true
pd_role: %s
transfer_channel: shm
chunk_size: 16
pd_buffer_size: 1MiB
pd_buffer_device: cpu
%sextra_config:
  kvferry:
    layout: {num_layers: 2, num_kv_heads: 1, head_size: 128, dtype: bfloat16}
    peer_share_pct: 100
`

func open(role, more string, control zmq.Config, log io.Writer) (*runtime.Node, error) {
	return openText(fmt.Sprintf(nodeText, role, more), control, log)
}

func openText(text string, control zmq.Config, log io.Writer) (*runtime.Node, error) {
	cfg, err := config.Parse("hostile", []byte(text), nil)
	if err != nil {
		return nil, err
	}
	for i := range cfg.InitPorts {
		cfg.InitPorts[i], cfg.AllocPorts[i] = 0, 0
	}
	return runtime.Open(context.Background(), cfg, runtime.WithLogger(slog.New(slog.NewTextHandler(log, nil))),
		runtime.WithControl(control.Opener()), runtime.WithPlane(shm.Name, shm.Open))
}

// An answer is what a victim says of itself.
type answer struct {
	Peer     runtime.Peer
	RSS      int // KiB, the most so far
	Files    int
	Held     int // pages that are not free
	CPU      time.Duration
	Wrong    int // bytes of chunks that arrived and are not their keys'
	Hits     int
	Problems string
	Code     effects.Code
	Remedy   string
}

func TestMain(m *testing.M) {
	if os.Getenv(victimFiles) == "" {
		os.Exit(m.Run())
	}
	if err := beVictim(); err != nil {
		fmt.Fprintln(os.Stderr, "victim:", err)
		os.Exit(1)
	}
}

func beVictim() error {
	var files uint64
	if _, err := fmt.Sscan(os.Getenv(victimFiles), &files); err != nil {
		return err
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: files, Max: files}); err != nil {
		return err
	}
	n, err := open("receiver", "pd_peer_host: 127.0.0.1\npd_peer_init_port: 1\npd_peer_alloc_port: 2\n",
		zmq.Config{MaxMessage: 1 << 20, MaxConns: 16, Handshake: 2 * time.Second}, os.Stderr)
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	// As long as there are files.
	own, err := os.Open("/proc/self/fd")
	if err != nil {
		return err
	}
	status, err := os.Open("/proc/self/status")
	if err != nil {
		return err
	}
	var taken []*os.File
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var a answer
		for _, s := range n.Servers() {
			switch a.Peer.Host = s.Addr.Host; s.Channel {
			case effects.ChannelInit:
				a.Peer.InitPort = s.Addr.Port
			case effects.ChannelAlloc:
				a.Peer.AllocPort = s.Addr.Port
			default:
			}
		}
		switch order := in.Text(); order {
		case "":
		case takeFiles:
			var f *os.File
			for err = nil; err == nil; taken = append(taken, f) {
				f, err = os.Open(os.DevNull)
			}
			a.Problems = err.Error()
		case giveFiles:
			for _, f := range taken {
				_ = f.Close() // The last one is none.
			}
			taken = nil
		default:
			if shortage, ok := strings.CutPrefix(order, openMore); ok {
				a.open(shortage)
			} else {
				a.get(n, order)
			}
		}
		a.look(n, own, status)
		if err := out.Encode(a); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return n.Close(ctx)
}

func (a *answer) look(n *runtime.Node, own, status *os.File) {
	s := n.Stats()
	a.Held = s.PagesTotal - s.PagesFree - s.Entries
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	a.CPU = time.Duration(u.Utime.Nano() + u.Stime.Nano())
	text := make([]byte, 4096)
	count, _ := status.ReadAt(text, 0)
	for line := range strings.Lines(string(text[:count])) {
		_, _ = fmt.Sscanf(line, "VmHWM: %d kB", &a.RSS)
	}
	_, _ = own.Seek(0, io.SeekStart)
	names, err := own.Readdirnames(-1)
	if a.Files = len(names) - 1; err != nil {
		a.Problems = err.Error()
	}
}

func (a *answer) get(n *runtime.Node, key string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	request := key[:strings.IndexByte(key, '@')]
	got, err := n.Receiver().Get(ctx, runtime.Get{Request: request, Keys: []string{key}, Patience: 9 * time.Second})
	if err != nil {
		a.Problems = err.Error()
		return
	}
	for i := range got.Len() {
		b, err := got.Host(i)
		if err != nil {
			a.Problems = err.Error()
			continue
		}
		a.Hits++
		want := content(key, len(b))
		for j := range b {
			if b[j] != want[j] {
				a.Wrong++
			}
		}
	}
	if err := got.Release(ctx); err != nil {
		a.Problems = err.Error()
	}
}

// content is what a chunk holds, by its key.
func content(key string, n int) []byte {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key))
	b, x := make([]byte, n), h.Sum64()
	for i := range b {
		x = x*6364136223846793005 + 1442695040888963407
		b[i] = byte(x >> 56)
	}
	return b
}

// A victim is the node under attack as its test sees it.
type victim struct {
	t    testing.TB
	cmd  *exec.Cmd
	log  logtest.Lines
	peer runtime.Peer

	mu    sync.Mutex // for one order at a time
	in    io.WriteCloser
	out   *json.Decoder
	files int // at most seen
}

// startVictim starts one that may open so many files; through a program that starts it, if one is given.
func startVictim(t testing.TB, files int, stderr io.Writer, through ...string) *victim {
	t.Helper()
	through = append(through, os.Args[0], "-test.run=^$")
	v := &victim{t: t, cmd: exec.Command(through[0], through[1:]...)}
	v.cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", victimFiles, files))
	if v.cmd.Stderr = stderr; stderr == nil {
		v.cmd.Stderr = &v.log
	}
	var err error
	if v.in, err = v.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := v.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	v.out = json.NewDecoder(out)
	if err := v.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(2*time.Minute, func() { _ = v.cmd.Process.Kill() })
	t.Cleanup(func() {
		_ = v.in.Close()
		if err := v.cmd.Wait(); err != nil {
			t.Errorf("the victim ended: %v", err)
		}
		late.Stop()
	})
	v.peer = v.says("").Peer
	return v
}

func (v *victim) initAddr() string { return net.JoinHostPort(v.peer.Host, fmt.Sprint(v.peer.InitPort)) }

// says gives the victim an order and returns its answer. It may be called from any goroutine.
func (v *victim) says(order string) (a answer) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, err := fmt.Fprintln(v.in, order); err != nil {
		v.t.Errorf("the victim takes no order any more: %v", err)
	} else if err := v.out.Decode(&a); err != nil {
		v.t.Errorf("the victim says nothing any more: %v", err)
	}
	v.files = max(v.files, a.Files)
	return a
}
