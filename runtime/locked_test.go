package runtime_test

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"github.com/kvferry/kvferry/runtime/plane/backing"
	"github.com/kvferry/kvferry/runtime/plane/shm"
)

// lockedBytes is what this process has locked.
func lockedBytes(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skip(err)
	}
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == "VmLck:" {
			kib, err := strconv.Atoi(words[1])
			if err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	t.Skip("the kernel does not count what is locked")
	return 0
}

func locking(t *testing.T, pages int) *config.Config {
	cfg := parse(t, "sender", "shm", pages, "pd_skip_proxy_notification: true\n")
	cfg.Pool.Lock = true
	return cfg
}

// With pool.lock the pages are locked while the node is open, whether or not an engine of another process has them, and
// chunks go as without.
func TestALockedPool(t *testing.T) {
	const pages = 64
	if err := backing.CheckLockLimit(2 * pages * pageBytes); err != nil {
		t.Skip(err)
	}
	for name, more := range map[string][]runtime.Option{"alone": nil, "attachable": {runtime.WithAttachable()}} {
		t.Run(name, func(t *testing.T) {
			before := lockedBytes(t)
			s, r := open(t, locking(t, pages), more...), open(t, receiverConfig(t, "shm", nil))
			if got := lockedBytes(t) - before; got < pages*pageBytes {
				t.Errorf("%d bytes are locked, want %d", got, pages*pageBytes)
			}
			keys := keysOf("locked", 4)
			pages := mustReserve(t, s, len(keys))
			fill(t, pages, keys)
			if _, err := s.Sender().Put(within(t), runtime.Put{Peer: peerOf(r), Keys: keys, Pages: pages}); err != nil {
				t.Fatal(err)
			}
			mustRelease(t, pages)
			got, err := r.Receiver().Get(within(t), runtime.Get{Request: "any", Keys: keys, Timeout: limit})
			if err != nil {
				t.Fatal(err)
			}
			wantContent(t, got, keys, pageBytes)
			mustRelease(t, got)
			waitFor(t, s, "the end of the put", func(s rank.Stats) bool { return s.Puts == 0 })
			mustClose(t, s)
			mustClose(t, r)
			if got := lockedBytes(t); got > before {
				t.Errorf("%d bytes are locked after the end, %d were before", got, before)
			}
		})
	}
}

// A pool that the process may not lock keeps the node from opening, which says how much it may and what to do. A
// process with CAP_IPC_LOCK has no limit: this one is tried again as nobody's.
func TestAPoolThatMayNotBeLocked(t *testing.T) {
	const unprivileged = "KVFERRY_TEST_UNPRIVILEGED"
	if status, err := os.ReadFile("/proc/self/status"); err == nil && backing.HasIPCLock(status) {
		if os.Getenv(unprivileged) != "" {
			t.Fatal("nobody has CAP_IPC_LOCK")
		}
		again := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
		again.Dir, again.Env = "/", append(os.Environ(), unprivileged+"=1")
		again.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		out, err := again.CombinedOutput()
		if errors.Is(err, syscall.EPERM) {
			t.Skipf("no process can be started as nobody: %v", err)
		}
		if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
			t.Errorf("as nobody: %v\n%s", err, out)
		}
		return
	}
	const memlock = 8 // RLIMIT_MEMLOCK
	var old syscall.Rlimit
	if err := syscall.Getrlimit(memlock, &old); err != nil {
		t.Fatal(err)
	}
	less := syscall.Rlimit{Cur: min(old.Max, 64<<10), Max: old.Max}
	if err := syscall.Setrlimit(memlock, &less); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Setrlimit(memlock, &old); err != nil {
			t.Error(err)
		}
	}()
	n, err := runtime.Open(t.Context(), locking(t, 64), runtime.WithControl(zmq.Config{}.Opener()),
		runtime.WithPlane(shm.Name, shm.Open))
	if err == nil {
		mustClose(t, n)
	}
	wantCode(t, err, effects.NoMemory)
	var u *backing.LockShortage
	if !errors.As(err, &u) || u.RequestedBytes != 64*pageBytes || u.Limit != less.Cur {
		t.Errorf("%v; want what was asked for, and what may be", err)
	}
	for _, want := range []string{"RLIMIT_MEMLOCK is 65536", "ulimit -l", "remove pool.lock"} {
		if err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}
