//go:build cgo && linux

package nixlproc_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/kvferry/kvferry/runtime/internal/proctest"
	"github.com/kvferry/kvferry/runtime/libnixl"
	"github.com/kvferry/kvferry/runtime/libnixl/libnixltest"
	"github.com/kvferry/kvferry/runtime/libnixl/nixlproc"
)

// nodeRole makes the test's binary a node that opens a host, says so and waits.
const nodeRole = "KVFERRY_NIXLPROC_NODE"

func TestMain(m *testing.M) {
	if nixlproc.IsChild() {
		nixlproc.Main()
	}
	if os.Getenv(nodeRole) != "" {
		newRig(proctest.TB{}, nixlproc.Options{})
		fmt.Println("{}")
		select {}
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(libnixltest.ExitProcess))
}

const regionBytes = 1 << 20

// A rig is a host with memory for two agents.
type rig struct {
	nixlproc.Host
	memory [2][]byte
	files  [2]*os.File
}

func newRig(tb testing.TB, o nixlproc.Options) *rig {
	tb.Helper()
	libnixltest.LoadLibrary(tb)
	r := &rig{}
	var regions []nixlproc.Region
	for i := range r.memory {
		r.files[i], r.memory[i] = libnixltest.AllocShared(tb, regionBytes)
		regions = append(regions, nixlproc.Region{Address: r.address(i), Bytes: regionBytes, File: r.files[i]})
	}
	var err error
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	if r.Host, err = o.Open(tb.Context(), nixlproc.HostConfig{Memory: regions, Log: log}); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := r.Close(); err != nil {
			tb.Error(err)
		}
	})
	return r
}

func (r *rig) address(i int) uint64 { return uint64(uintptr(unsafe.Pointer(&r.memory[i][0]))) }

func (r *rig) agent(tb testing.TB, i int, name string) nixlproc.Agent {
	tb.Helper()
	a, err := r.NewAgent(libnixl.AgentOptions{Name: name, Params: libnixl.UCXParams("tcp", false)}, nil)
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := a.RegisterMemory(libnixl.Range{Address: r.address(i), Bytes: regionBytes}); err != nil {
		tb.Fatal(err)
	}
	return a
}

func closeAll(tb testing.TB, agents ...nixlproc.Agent) {
	tb.Helper()
	for _, a := range agents {
		if err := a.Close(); err != nil {
			tb.Error(err)
		}
	}
}

// transfer makes a transfer of the memory of agent 0 to that of agent 1.
func (r *rig) transfer(tb testing.TB, from, to nixlproc.Agent) nixlproc.Transfer {
	tb.Helper()
	metadata, err := to.Metadata()
	if err != nil {
		tb.Fatal(err)
	}
	peer, err := from.LoadMetadata(metadata)
	if err != nil {
		tb.Fatal(err)
	}
	t, err := from.NewTransfer(libnixl.TransferOptions{Operation: libnixl.Write, Peer: peer, Notice: []byte("done"),
		Pairs: []libnixl.Pair{{Local: r.address(0), Remote: r.PeerAddress(r.address(1)), Bytes: regionBytes}}})
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

func (r *rig) child(tb testing.TB) int {
	tb.Helper()
	list := libnixltest.Children(tb, os.Getpid())
	if len(list) != 1 {
		tb.Fatalf("there are %d processes of libnixl: %v", len(list), list)
	}
	return list[0]
}

// Bytes move between agents of a host, with a notice, and a late transfer does not start.
func TestTransfers(t *testing.T) {
	r := newRig(t, nixlproc.Options{})
	moveBytes(t, r, "")
	if info := r.Info(); info.Library == "" || len(info.Signals) > 0 {
		t.Errorf("the library is %+v", info)
	}
}

func moveBytes(t *testing.T, r *rig, suffix string) {
	t.Helper()
	a, b := r.agent(t, 0, "a"+suffix), r.agent(t, 1, "b"+suffix)
	for i := range r.memory[0] {
		r.memory[0][i], r.memory[1][i] = byte(i*7+len(suffix)), 0
	}
	late := r.transfer(t, a, b)
	if _, err := late.Post(-1); !errors.Is(err, nixlproc.ErrLate) {
		t.Errorf("late: %v", err)
	}
	w := r.transfer(t, a, b)
	done, err := w.Post(time.Minute)
	noted := false
	for end := time.Now().Add(proctest.Limit); (!done || !noted) && err == nil; {
		if time.Now().After(end) {
			t.Fatal("it takes too long")
		}
		var list []libnixl.Notice
		if list, err = b.PollNotices(); err == nil && len(list) > 0 {
			if noted = true; len(list) != 1 || string(list[0].Bytes) != "done" || list[0].Peer != "a"+suffix {
				t.Errorf("notices are %v", list)
			}
		}
		if !done && err == nil {
			done, err = w.Check()
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(r.memory[0], r.memory[1]) {
		t.Error("other bytes arrived")
	}
	for _, err := range []error{late.Close(), w.Close()} {
		if err != nil {
			t.Error(err)
		}
	}
	closeAll(t, a, b)
}

// Calls that cannot be carried out are refused, and the agent goes on.
func TestRefusals(t *testing.T) {
	r := newRig(t, nixlproc.Options{})
	a := r.agent(t, 0, "a")
	defer closeAll(t, a)
	foreign := uint64(uintptr(unsafe.Pointer(&libnixltest.AllocMemory(t, 4096)[0])))
	_, register := a.RegisterMemory(libnixl.Range{Address: foreign, Bytes: 4096})
	_, beyond := a.RegisterMemory(libnixl.Range{Address: r.address(0), Bytes: regionBytes + 1})
	_, local := a.NewTransfer(libnixl.TransferOptions{Peer: "b", Pairs: []libnixl.Pair{{Local: foreign, Remote: 1, Bytes: 1}}})
	_, name := r.NewAgent(libnixl.AgentOptions{Name: ""}, nil)
	_, metadata := a.LoadMetadata(nil)
	_, noFile := nixlproc.Options{}.Open(t.Context(), nixlproc.HostConfig{Memory: []nixlproc.Region{{Address: foreign, Bytes: 4096}}})
	for i, err := range []error{register, beyond, local, name, metadata, noFile} {
		if !errors.Is(err, libnixl.ErrInvalid) {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if !strings.Contains(noFile.Error(), "nixl.in_process: true") {
		t.Errorf("no remedy: %v", noFile)
	}
	if _, err := a.LoadMetadata([]byte("nonsense")); err == nil {
		t.Error("nonsense was loaded")
	}
	if err := a.SendNotice("nobody", []byte("hello")); err == nil {
		t.Error("a notice to nobody was sent")
	}
	if _, err := a.Metadata(); err != nil {
		t.Error(err)
	}
	none := nixlproc.Options{Library: "/nowhere/libnixl_capi.so"}
	if _, err := none.Open(t.Context(), nixlproc.HostConfig{}); !errors.Is(err, nixlproc.ErrNoLibrary) ||
		!strings.Contains(err.Error(), "nixl-cu12") {
		t.Errorf("without a library: %v", err)
	}
	other := nixlproc.Options{Program: "/bin/true"}
	if _, err := other.Open(t.Context(), nixlproc.HostConfig{}); err == nil || !strings.Contains(err.Error(), "/bin/true") {
		t.Errorf("another program: %v", err)
	}
}

// The process of libnixl has no memory and no file of the node but the pool.
func TestChildHasNothingElse(t *testing.T) {
	// Files that this process would pass on to any program.
	kept, err := unix.Open(filepath.Join(t.TempDir(), "kept"), unix.O_CREAT|unix.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(kept)
	_, secret := libnixltest.AllocShared(t, 1<<20)
	copy(secret, "this is a key")
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	before := filesOf(t, os.Getpid())
	t.Setenv("KVFERRY_TEST_SECRET", "secret")

	r := newRig(t, nixlproc.Options{})
	a := r.agent(t, 0, "a")
	defer closeAll(t, a)
	child := r.child(t)
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", child))
	if err != nil {
		t.Fatal(err)
	}
	want := map[uint64]int{}
	for _, f := range r.files {
		var st unix.Stat_t
		if err := unix.Fstat(int(f.Fd()), &st); err != nil {
			t.Fatal(err)
		}
		want[st.Ino]++
	}
	for line := range strings.Lines(string(maps)) {
		if !strings.Contains(line, "memfd:") {
			continue
		}
		var from, to, offset, inode uint64
		var rights, device string
		if _, err := fmt.Sscanf(line, "%x-%x %s %x %s %d", &from, &to, &rights, &offset, &device, &inode); err != nil {
			t.Fatal(err)
		}
		if want[inode]--; want[inode] < 0 || to-from != regionBytes {
			t.Errorf("the child maps %s", line)
		}
	}
	for inode, n := range want {
		if n != 0 {
			t.Errorf("memory %d is not mapped: this test looks at the wrong process", inode)
		}
	}
	standardError, err := os.Readlink("/proc/self/fd/2")
	if err != nil {
		t.Fatal(err)
	}
	for _, to := range filesOf(t, child) {
		switch {
		case to == standardError:
		case strings.HasPrefix(to, "socket:"), strings.HasPrefix(to, "pipe:"):
			if slices.Contains(before, to) {
				t.Errorf("the child has the node's %s", to)
			}
		case to == "/dev/null", strings.HasPrefix(to, "anon_inode:"), strings.HasPrefix(to, "/dev/infiniband"),
			strings.HasPrefix(to, "/proc/"), strings.HasPrefix(to, "/sys/"), strings.HasPrefix(to, "/dev/nvidia"):
		default:
			t.Errorf("the child has %s", to)
		}
	}
	environment, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", child))
	if err != nil || bytes.Contains(environment, []byte("SECRET")) || bytes.Contains(environment, []byte("HOME=")) {
		t.Errorf("the child's environment is %q, %v", environment, err)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", child))
	if err != nil || !strings.Contains(string(status), "NoNewPrivs:\t1") {
		t.Errorf("the child may gain privileges: %v", err)
	}
	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", child))
	if err != nil || !strings.Contains(strings.Join(strings.Fields(string(limits)), " "), "Max core file size 0 0") {
		t.Errorf("the child writes core files: %s, %v", limits, err)
	}
}

func filesOf(tb testing.TB, pid int) (list []string) {
	tb.Helper()
	folder := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(folder)
	if err != nil {
		tb.Fatal(err)
	}
	for _, e := range entries {
		if to, err := os.Readlink(filepath.Join(folder, e.Name())); err == nil {
			list = append(list, to)
		}
	}
	return list
}

// A child that is killed or frozen ends all its agents, and another one follows at the same addresses.
func TestChildEnds(t *testing.T) {
	for _, c := range []struct {
		name   string
		signal syscall.Signal
	}{{"killed", syscall.SIGKILL}, {"frozen", syscall.SIGSTOP}, {"a fault", syscall.SIGSEGV}} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, nixlproc.Options{CallTimeout: 3 * time.Second})
			a, b := r.agent(t, 0, "a"), r.agent(t, 1, "b")
			w := r.transfer(t, a, b)
			before, child := r.PeerAddress(r.address(1)), r.child(t)
			if err := syscall.Kill(child, c.signal); err != nil {
				t.Fatal(err)
			}
			_, err := w.Post(time.Minute)
			if err == nil {
				_, err = w.Check()
			}
			if !errors.Is(err, nixlproc.ErrEnded) {
				t.Errorf("a transfer: %v", err)
			}
			// The process is reaped before the call returns.
			if err := syscall.Kill(child, 0); !errors.Is(err, syscall.ESRCH) {
				t.Errorf("the process is still there: %v", err)
			}
			<-a.Ended()
			if _, err := b.Metadata(); !errors.Is(err, nixlproc.ErrEnded) {
				t.Errorf("metadata: %v", err)
			}
			if err := w.Close(); err != nil {
				t.Error(err)
			}
			closeAll(t, a, b)
			moveBytes(t, r, "'")
			if after := r.PeerAddress(r.address(1)); after != before || after == 0 {
				t.Errorf("the memory is at %#x, it was at %#x", after, before)
			}
		})
	}
}

// A child that is frozen without a call in progress is found, too.
func TestIdleChildIsFrozen(t *testing.T) {
	r := newRig(t, nixlproc.Options{CallTimeout: 2 * time.Second})
	a := r.agent(t, 0, "a")
	if err := syscall.Kill(r.child(t), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	select {
	case <-a.Ended():
	case <-time.After(proctest.Limit):
		t.Fatal("nothing happens")
	}
	closeAll(t, a)
}

// Metadata that a peer has changed end the child that loads them, and only it.
func TestBadMetadata(t *testing.T) {
	r := newRig(t, nixlproc.Options{})
	from, to := r.agent(t, 0, "a"), r.agent(t, 1, "b")
	metadata, err := to.Metadata()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := from.LoadMetadata(libnixltest.DeadlyMetadata(t, metadata)); !errors.Is(err, nixlproc.ErrEnded) {
		t.Errorf("the process has loaded it: %v", err)
	}
	closeAll(t, from, to)
	moveBytes(t, r, "'")
}

// The peer of a connection that an agent holds does not see its end before the agent's, whatever this process does.
func TestConnectionIsHeld(t *testing.T) {
	r := newRig(t, nixlproc.Options{})
	for _, how := range []string{"closed", "killed"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ours, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		theirs, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer theirs.Close()
		a, err := r.NewAgent(libnixl.AgentOptions{Name: "a" + how}, ours)
		if err != nil {
			t.Fatal(err)
		}
		_ = ours.Close() // As the kernel does when this process dies.
		_ = theirs.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		if _, err := theirs.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: the connection ended before the agent: %v", how, err)
		}
		if how == "closed" {
			closeAll(t, a)
		} else if err := syscall.Kill(r.child(t), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		_ = theirs.SetReadDeadline(time.Now().Add(proctest.Limit))
		if _, err := theirs.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("%s: the connection has not ended with the agent: %v", how, err)
		}
		if how == "killed" {
			closeAll(t, a)
		}
	}
}

// The child of a node that is killed ends, even if it is frozen.
func TestNodeIsKilled(t *testing.T) {
	libnixltest.LoadLibrary(t)
	for _, frozen := range []bool{false, true} {
		node := proctest.SelfCommand(nodeRole + "=1")
		p := proctest.Start(t, node)
		p.ReceiveJSON(&struct{}{})
		children := libnixltest.Children(t, node.Process.Pid)
		if len(children) != 1 {
			t.Fatalf("the node has the children %v", children)
		}
		if frozen {
			if err := syscall.Kill(children[0], syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
		}
		p.Kill()
		for end := time.Now().Add(proctest.Limit); !hasEnded(children[0]); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("frozen=%v: the child outlives the node", frozen)
			}
		}
	}
}

// hasEnded reports whether a process does not exist any more, except as a zombie that its parent has not reaped.
func hasEnded(pid int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	return err != nil || strings.Contains(string(status), "\nState:\tZ") || strings.Contains(string(status), "\nState:\tX")
}

// An opening that is given up leaves nothing.
func TestOpenIsCancelled(t *testing.T) {
	libnixltest.LoadLibrary(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	h, err := nixlproc.Options{}.Open(ctx, nixlproc.HostConfig{})
	if err == nil {
		err = h.Close()
		if err != nil {
			t.Error(err)
		}
	}
	if list := libnixltest.Children(t, os.Getpid()); len(list) > 0 {
		t.Errorf("there are %v", list)
	}
}
