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

// An end is an end of a pair: a device in use, a registered pool on the device and on the host, and a communicator.
type end struct {
	*rig
	ctx          *acl.Context
	stream       *acl.Stream
	device, host *acl.Memory
	regions      []*Region // the device's, the host's
	comm         *Comm
	rank         uint32
	peer         pools
}

// pools holds the addresses of an end's memory, which the ends exchange.
type pools struct{ Device, Host uintptr }

// newEnd takes a device into use, with everything but a communicator.
func newEnd(r *rig, id acl.DeviceID) *end {
	r.t.Helper()
	e := &end{rig: r, ctx: r.context(id)}
	e.do(func(t *acl.Thread) (err error) { e.stream, err = t.NewStream(acl.StreamOptions{}); return err })
	e.later(func(t *acl.Thread) error { return e.stream.Close(t) })
	e.do(func(t *acl.Thread) (err error) { e.device, err = t.AllocDevice(poolSize, acl.HugeFirst); return err })
	e.later(func(t *acl.Thread) error { return e.device.Close(t) })
	e.do(func(t *acl.Thread) (err error) { e.host, err = t.AllocHost(poolSize); return err })
	e.later(func(t *acl.Thread) error { return e.host.Close(t) })
	e.register(Memory{acl.OnDevice, e.device.Address(), poolSize})
	e.register(Memory{acl.OnHost, e.host.Address(), poolSize})
	return e
}

func (e *end) do(f func(*acl.Thread) error) {
	e.t.Helper()
	if err := e.ctx.Do(f); err != nil {
		e.t.Fatal(err)
	}
}

// later gives something back when the test ends.
func (e *end) later(f func(*acl.Thread) error) {
	e.t.Cleanup(func() {
		if err := e.ctx.Do(f); err != nil {
			e.t.Error(err)
		}
	})
}

func (e *end) register(m Memory) {
	e.t.Helper()
	apart(e.t, e.ctx, func(at acl.Current) error {
		r, err := e.lib.Register(at, m)
		if err == nil {
			e.regions = append(e.regions, r)
			e.t.Cleanup(func() { apart(e.t, e.ctx, r.Close) })
		}
		return err
	})
}

func (e *end) pools() pools { return pools{e.device.Address(), e.host.Address()} }

// open makes the communicator and binds both pools.
func (e *end) open(o CommOptions) error {
	return e.ctx.Apart(func(at *acl.Guest) (err error) {
		if e.comm, err = e.lib.NewComm(at, o); err != nil {
			return err
		}
		e.rank = o.Rank
		return e.comm.Bind(at, e.regions...)
	})
}

func (e *end) prepare() error {
	return e.ctx.Apart(func(at *acl.Guest) error { return e.comm.Prepare(at, longEnough, 2) })
}

// shut closes the communicator.
func (e *end) shut() error { return e.ctx.Apart(func(at *acl.Guest) error { return e.comm.Close(at) }) }

// join makes the communicator, to be closed when the test ends, and meets the peer.
func (e *end) join(o CommOptions) error {
	if err := e.open(o); err != nil {
		return err
	}
	e.t.Cleanup(func() {
		if err := e.shut(); err != nil {
			e.t.Error(err)
		}
	})
	return e.prepare()
}

// put and get move a batch and wait for its end. They return the error of the call, or of the stream.
func (e *end) put(descs ...Desc) error { return e.batch((*Comm).Put, descs) }
func (e *end) get(descs ...Desc) error { return e.batch((*Comm).Get, descs) }

func (e *end) batch(move func(*Comm, acl.Current, *acl.Stream, []Desc) error, descs []Desc) error {
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

// write and read are of the device's pool.
func (e *end) write(at uint64, data []byte) {
	e.t.Helper()
	e.do(func(t *acl.Thread) error { return t.Upload(e.device.Range(at, uint64(len(data))), data) })
}

func (e *end) read(at uint64, n int) []byte {
	e.t.Helper()
	data := make([]byte, n)
	e.do(func(t *acl.Thread) error { return t.Download(data, e.device.Range(at, uint64(n))) })
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

// options returns the options for the end of a rank, over a link, with a rank table.
func options(t testing.TB, link Link, rank uint32, name string) CommOptions {
	t.Helper()
	a := Rank{Server: "10.0.0.1", Device: 0, Address: netip.MustParseAddr("192.168.1.10")}
	b := Rank{Server: "10.0.0.2", Device: 1, Address: netip.MustParseAddr("192.168.1.23")}
	if link == HCCS {
		b.Server = a.Server
	}
	table, _, _, err := Table(a, b)
	if err != nil {
		t.Fatal(err)
	}
	return CommOptions{Name: name, Rank: rank, Table: table, CloseTimeout: longEnough}
}

// couple makes both ends of a pair in this process, on two devices.
func couple(t testing.TB, link Link, hidden ...string) [2]*end {
	t.Helper()
	r := newRig(t, hidden...)
	ends := [2]*end{newEnd(r, 0), newEnd(r, 1)}
	ends[0].peer, ends[1].peer = ends[1].pools(), ends[0].pools()
	meet(t, ends, link, "couple")
	return ends
}

// meet makes the ends' communicators, both at once, because Prepare waits for the peer.
func meet(t testing.TB, ends [2]*end, link Link, name string) {
	t.Helper()
	errs := both(ends, func(e *end, rank uint32) error { return e.join(options(t, link, rank, name)) })
	for rank, err := range errs {
		if err != nil {
			t.Fatalf("rank %d: %v", rank, err)
		}
	}
}

// both runs f for both ends at once.
func both(ends [2]*end, f func(e *end, rank uint32) error) (errs [2]error) {
	var all sync.WaitGroup
	for i, e := range ends {
		all.Go(func() { errs[i] = f(e, uint32(i)) })
	}
	all.Wait()
	return errs
}

// ---- two processes ----

const farVariable = "KVFERRY_COMM_FAR"

// A line connects the two processes of a test.
type line struct {
	t   *testing.T
	far bool // this is the started process
	in  *json.Decoder
	out *json.Encoder
	cmd *exec.Cmd // the started process, in the starting process; nil once killed
}

// split starts the same test in a second process. Both processes run the rest of the test; at the end the first process
// waits for the second, and fails if the second has failed.
func split(t *testing.T) *line {
	t.Helper()
	needNPU(t)
	if os.Getenv(farVariable) != "" {
		file := os.NewFile(3, "line")
		t.Cleanup(func() { file.Close() })
		return &line{t: t, far: true, in: json.NewDecoder(file), out: json.NewEncoder(file)}
	}
	sockets, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	near, far := os.NewFile(uintptr(sockets[0]), "near"), os.NewFile(uintptr(sockets[1]), "far")
	ctx, cancel := context.WithTimeout(context.Background(), longEnough)
	cmd := rerun(ctx, t, farVariable+"=1")
	cmd.ExtraFiles = []*os.File{far}
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	far.Close()
	l := &line{t: t, in: json.NewDecoder(near), out: json.NewEncoder(near), cmd: cmd}
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

// rerun returns a command that runs this test in another process.
func rerun(ctx context.Context, t *testing.T, env ...string) *exec.Cmd {
	parts := strings.Split(t.Name(), "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run="+strings.Join(parts, "/"), "-test.count=1",
		"-test.timeout="+longEnough.String())
	cmd.Env = append(os.Environ(), env...)
	return cmd
}

const aloneVariable = "KVFERRY_COMM_ALONE"

// alone runs the test in a separate process with additional environment variables. It returns true in that process, and
// false in this process after that process has ended.
func alone(t *testing.T, env ...string) bool {
	t.Helper()
	needNPU(t)
	if os.Getenv(aloneVariable) == t.Name() {
		return true
	}
	if out, err := rerun(t.Context(), t, append(env, aloneVariable+"="+t.Name())...).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	return false
}

func (l *line) tell(v any) {
	l.t.Helper()
	if err := l.out.Encode(v); err != nil {
		l.t.Fatal(err)
	}
}

func (l *line) hear(v any) {
	l.t.Helper()
	if err := l.in.Decode(v); err != nil {
		l.t.Fatal(fmt.Errorf("the other process has ended: %w", err))
	}
}

// step lets the second process return from awaitStep.
func (l *line) step() { l.tell("step") }

func (l *line) await() {
	l.t.Helper()
	var word string
	l.hear(&word)
}

// kill kills the second process and waits for its end.
func (l *line) kill() {
	l.t.Helper()
	if err := l.cmd.Process.Kill(); err != nil {
		l.t.Fatal(err)
	}
	if err := l.cmd.Wait(); err == nil {
		l.t.Error("the far process ended before it was killed")
	}
	l.cmd = nil
}

// pair makes a pair in two processes: the first process is rank 0, the second is rank 1.
func pair(t *testing.T, link Link, hidden ...string) (*line, *end) {
	t.Helper()
	l := split(t)
	e := newEnd(newRig(t, hidden...), 0)
	rank := uint32(0)
	if l.far {
		rank = 1
	}
	if err := e.join(options(t, link, rank, "pair")); err != nil {
		t.Fatal(err)
	}
	l.tell(e.pools())
	l.hear(&e.peer)
	return l, e
}
