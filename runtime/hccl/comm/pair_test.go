//go:build cgo && linux

package comm

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/kvferry/kvferry/runtime/acl"
)

const (
	mib      = 1 << 20
	poolSize = 4 * mib // of each pool, on the device and on the host
)

// An endpoint is an end of a pair: a device in use, a registered pool on the device and on the host, and a
// communicator.
type endpoint struct {
	*rig
	ctx          *acl.Context
	stream       *acl.Stream
	device, host *acl.Memory
	regions      []*Region // the device's, the host's
	comm         *Comm
	rank         uint32
	peer         poolPair
}

// poolPair holds the addresses of an end's memory, which the ends exchange.
type poolPair struct{ Device, Host uintptr }

// newEndpoint takes a device into use, with everything but a communicator.
func newEndpoint(r *rig, id acl.DeviceID) *endpoint {
	r.t.Helper()
	e := &endpoint{rig: r, ctx: r.newContext(id)}
	e.mustDo(func(t *acl.Thread) (err error) { e.stream, err = t.NewStream(acl.StreamOptions{}); return err })
	e.deferClose(func(t *acl.Thread) error { return e.stream.Close(t) })
	e.mustDo(func(t *acl.Thread) (err error) { e.device, err = t.AllocDevice(poolSize, acl.HugeFirst); return err })
	e.deferClose(func(t *acl.Thread) error { return e.device.Close(t) })
	e.mustDo(func(t *acl.Thread) (err error) { e.host, err = t.AllocHost(poolSize); return err })
	e.deferClose(func(t *acl.Thread) error { return e.host.Close(t) })
	e.registerMemory(Memory{acl.OnDevice, e.device.Address(), poolSize})
	e.registerMemory(Memory{acl.OnHost, e.host.Address(), poolSize})
	return e
}

func (e *endpoint) mustDo(f func(*acl.Thread) error) {
	e.t.Helper()
	if err := e.ctx.Do(f); err != nil {
		e.t.Fatal(err)
	}
}

// deferClose gives something back when the test ends.
func (e *endpoint) deferClose(f func(*acl.Thread) error) {
	e.t.Cleanup(func() {
		if err := e.ctx.Do(f); err != nil {
			e.t.Error(err)
		}
	})
}

func (e *endpoint) registerMemory(m Memory) {
	e.t.Helper()
	mustDoBlocking(e.t, e.ctx, func(at acl.CurrentThread) error {
		r, err := e.lib.RegisterMemory(at, m)
		if err == nil {
			e.regions = append(e.regions, r)
			e.t.Cleanup(func() { mustDoBlocking(e.t, e.ctx, r.Close) })
		}
		return err
	})
}

func (e *endpoint) poolAddresses() poolPair { return poolPair{e.device.Address(), e.host.Address()} }

// openComm makes the communicator and binds both pools.
func (e *endpoint) openComm(o CommOptions) error {
	return e.ctx.DoBlocking(func(at *acl.BlockingThread) (err error) {
		if e.comm, err = e.lib.NewComm(at, o); err != nil {
			return err
		}
		e.rank = o.Rank
		return e.comm.Bind(at, e.regions...)
	})
}

func (e *endpoint) prepareComm() error {
	return e.ctx.DoBlocking(func(at *acl.BlockingThread) error { return e.comm.Prepare(at, longEnough, 2) })
}

// closeComm closes the communicator.
func (e *endpoint) closeComm() error {
	return e.ctx.DoBlocking(func(at *acl.BlockingThread) error { return e.comm.Close(at) })
}

// joinComm makes the communicator, to be closed when the test ends, and meets the peer.
func (e *endpoint) joinComm(o CommOptions) error {
	if err := e.openComm(o); err != nil {
		return err
	}
	e.t.Cleanup(func() {
		if err := e.closeComm(); err != nil {
			e.t.Error(err)
		}
	})
	return e.prepareComm()
}

// putBatch and get move a batch and wait for its end. They return the error of the call, or of the stream.
func (e *endpoint) putBatch(descs ...Desc) error { return e.runBatch((*Comm).Put, descs) }
func (e *endpoint) getBatch(descs ...Desc) error { return e.runBatch((*Comm).Get, descs) }

func (e *endpoint) runBatch(move func(*Comm, acl.CurrentThread, *acl.Stream, []Desc) error, descs []Desc) error {
	outcome := make(chan error, 1)
	if err := e.ctx.Do(func(t *acl.Thread) error {
		if err := move(e.comm, t, e.stream, descs); err != nil {
			return err
		}
		return e.stream.Notify(t, func(err error) { outcome <- err })
	}); err != nil {
		return err
	}
	return <-outcome
}

// writeDevice and read are of the device's pool.
func (e *endpoint) writeDevice(at uint64, data []byte) {
	e.t.Helper()
	e.mustDo(func(t *acl.Thread) error { return t.Upload(e.device.Range(at, uint64(len(data))), data) })
}

func (e *endpoint) readDevice(at uint64, n int) []byte {
	e.t.Helper()
	data := make([]byte, n)
	e.mustDo(func(t *acl.Thread) error { return t.Download(data, e.device.Range(at, uint64(n))) })
	return data
}

// pattern returns n bytes that depend on the seed and the position.
func pattern(n int, seed byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i)*31 + byte(i>>8) + seed
	}
	return b
}

// commOptions returns the options for the end of a rank, over a link, with a rank table.
func commOptions(t testing.TB, link Link, rank uint32, name string) CommOptions {
	t.Helper()
	a := Rank{Server: "10.0.0.1", Device: 0, Address: netip.MustParseAddr("192.168.1.10")}
	b := Rank{Server: "10.0.0.2", Device: 1, Address: netip.MustParseAddr("192.168.1.23")}
	if link == HCCS {
		b.Server = a.Server
	}
	table, _, _, err := NewRankTable(a, b)
	if err != nil {
		t.Fatal(err)
	}
	return CommOptions{Name: name, Rank: rank, RankTable: table, CloseTimeout: longEnough}
}

// newPairInProcess makes both ends of a pair in this process, on two devices.
func newPairInProcess(t testing.TB, link Link, hidden ...string) [2]*endpoint {
	t.Helper()
	r := newRig(t, hidden...)
	ends := [2]*endpoint{newEndpoint(r, 0), newEndpoint(r, 1)}
	ends[0].peer, ends[1].peer = ends[1].poolAddresses(), ends[0].poolAddresses()
	joinBoth(t, ends, link, "couple")
	return ends
}

// joinBoth makes the ends' communicators, both at once, because Prepare waits for the peer.
func joinBoth(t testing.TB, ends [2]*endpoint, link Link, name string) {
	t.Helper()
	errs := runForBoth(ends, func(e *endpoint, rank uint32) error { return e.joinComm(commOptions(t, link, rank, name)) })
	for rank, err := range errs {
		if err != nil {
			t.Fatalf("rank %d: %v", rank, err)
		}
	}
}

// runForBoth runs f for both ends at once.
func runForBoth(ends [2]*endpoint, f func(e *endpoint, rank uint32) error) (errs [2]error) {
	var all sync.WaitGroup
	for i, e := range ends {
		all.Go(func() { errs[i] = f(e, uint32(i)) })
	}
	all.Wait()
	return errs
}

// ---- two processes ----

const otherProcessVariable = "KVFERRY_COMM_FAR"

// A processLink connects the two processes of a test.
type processLink struct {
	t       *testing.T
	isOther bool // this is the started process
	in      *json.Decoder
	out     *json.Encoder
	cmd     *exec.Cmd // the started process, in the starting process; nil once killed
}

// startOtherProcess starts the same test in a second process. Both processes run the rest of the test; at the end the
// first process waits for the second, and fails if the second has failed.
func startOtherProcess(t *testing.T) *processLink {
	t.Helper()
	needNPU(t)
	if os.Getenv(otherProcessVariable) != "" {
		file := os.NewFile(3, "line")
		t.Cleanup(func() { file.Close() })
		return &processLink{t: t, isOther: true, in: json.NewDecoder(file), out: json.NewEncoder(file)}
	}
	sockets, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	near, far := os.NewFile(uintptr(sockets[0]), "near"), os.NewFile(uintptr(sockets[1]), "far")
	ctx, cancel := context.WithTimeout(context.Background(), longEnough)
	cmd := rerunCommand(ctx, t, otherProcessVariable+"=1")
	cmd.ExtraFiles = []*os.File{far}
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	far.Close()
	l := &processLink{t: t, in: json.NewDecoder(near), out: json.NewEncoder(near), cmd: cmd}
	t.Cleanup(func() {
		defer cancel()
		near.Close()
		if l.cmd == nil {
			return
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("the far process: %v\n%s", err, output.Bytes())
		}
	})
	return l
}

// rerunCommand returns a command that runs this test in another process.
func rerunCommand(ctx context.Context, t *testing.T, env ...string) *exec.Cmd {
	parts := strings.Split(t.Name(), "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run="+strings.Join(parts, "/"), "-test.count=1",
		"-test.timeout="+longEnough.String())
	cmd.Env = append(os.Environ(), env...)
	return cmd
}

const ownProcessVariable = "KVFERRY_COMM_ALONE"

// runInOwnProcess runs the test in a separate process with additional environment variables. It returns true in that
// process, and false in this process after that process has ended.
func runInOwnProcess(t *testing.T, env ...string) bool {
	t.Helper()
	needNPU(t)
	if os.Getenv(ownProcessVariable) == t.Name() {
		return true
	}
	if out, err := rerunCommand(t.Context(), t, append(env, ownProcessVariable+"="+t.Name())...).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	return false
}

func (l *processLink) sendValue(v any) {
	l.t.Helper()
	if err := l.out.Encode(v); err != nil {
		l.t.Fatal(err)
	}
}

func (l *processLink) readValue(v any) {
	l.t.Helper()
	if err := l.in.Decode(v); err != nil {
		l.t.Fatal(fmt.Errorf("the other process has ended: %w", err))
	}
}

// allowStep lets the second process return from awaitStep.
func (l *processLink) allowStep() { l.sendValue("step") }

func (l *processLink) awaitStep() {
	l.t.Helper()
	var word string
	l.readValue(&word)
}

// killOther kills the second process and waits for its end.
func (l *processLink) killOther() {
	l.t.Helper()
	if err := l.cmd.Process.Kill(); err != nil {
		l.t.Fatal(err)
	}
	if err := l.cmd.Wait(); err == nil {
		l.t.Error("the far process ended before it was killed")
	}
	l.cmd = nil
}

// newPairOfProcesses makes a pair in two processes: the first process is rank 0, the second is rank 1.
func newPairOfProcesses(t *testing.T, link Link, hidden ...string) (*processLink, *endpoint) {
	t.Helper()
	l := startOtherProcess(t)
	e := newEndpoint(newRig(t, hidden...), 0)
	rank := uint32(0)
	if l.isOther {
		rank = 1
	}
	if err := e.joinComm(commOptions(t, link, rank, "pair")); err != nil {
		t.Fatal(err)
	}
	l.sendValue(e.poolAddresses())
	l.readValue(&e.peer)
	return l, e
}
