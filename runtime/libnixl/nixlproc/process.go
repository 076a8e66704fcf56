//go:build cgo && linux

package nixlproc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvferry/kvferry/runtime/libnixl"
)

// Options say how the process of agents is started.
type Options struct {
	// Library is what libnixl.Options has: the file to load, or empty for the search.
	Library string
	// Program is the file of a program that calls Main when IsChild. If Program is empty, it is this program, which then
	// must have asked IsChild.
	Program string
	// CallTimeout is the time in which each call must return. A process that takes longer is killed. The default is 10
	// s.
	CallTimeout time.Duration
}

const (
	defaultCallTimeout = 10 * time.Second
	// The pauses before a process is started anew, while processes live shorter than longLife.
	firstPause, lastPause = 100 * time.Millisecond, 30 * time.Second
	longLife              = time.Minute
	// startWait is the longest time for which NewAgent waits for a process.
	startWait = 2 * time.Second
	// closeWait is the time in which a process ends by itself after its control socket was closed.
	closeWait = 2 * time.Second
)

// memoryUnit is what regions are multiples of, and how far apart.
const memoryUnit = 1 << 30

// memoryBase returns where a child maps the first region: above what Go's heap, which begins at a random address, the
// race detector and AddressSanitizer use, and below programs, libraries and stacks.
func memoryBase() uint64 {
	if runtime.GOARCH == "arm64" {
		return 0x8200_0000_0000
	}
	return 0x4100_0000_0000
}

// A mappedRegion is a region with its address in the child.
type mappedRegion struct {
	Region
	child uint64
}

// An isolatedHost is a Host whose agents live in a child process, which is started anew when it has ended.
type isolatedHost struct {
	options Options
	program string
	log     *slog.Logger
	regions []mappedRegion
	stop    chan struct{} // closed when the host closes
	stopped chan struct{} // closed when no child is left and none follows

	mu        sync.Mutex
	closed    bool
	child     *child        // nil: none is up
	changed   chan struct{} // closed when the fields above and below have changed
	info      libnixl.Info
	nextStart time.Time // while there is no child: when one is started
	lastEnd   error     // why the last child ended
}

// A child is a child process.
type child struct {
	host    *isolatedHost
	control *net.UnixConn
	process *os.Process
	exited  chan struct{} // closed when the kernel has reported that the process has exited

	mu    sync.Mutex
	cause error // why it was killed, the first reason
}

// Open starts the process. It is an Opener.
func (o Options) Open(ctx context.Context, c HostConfig) (Host, error) {
	o.CallTimeout = cmp.Or(o.CallTimeout, defaultCallTimeout)
	p := &isolatedHost{options: o, program: o.Program, log: cmp.Or(c.Log, slog.Default()), stop: make(chan struct{}),
		stopped: make(chan struct{}), changed: make(chan struct{})}
	switch {
	case o.CallTimeout < 0:
		return nil, fmt.Errorf("%w: the timeout for calls of libnixl's process is %v; give a positive time", libnixl.ErrInvalid, o.CallTimeout)
	case p.program == "" && !hooked:
		return nil, fmt.Errorf("%w: libnixl runs in a process of its own, and this program cannot be that process: name a kvferry "+
			"binary in nixl.program, call nixlproc.IsChild and nixlproc.Main at the beginning of main, or accept with "+
			"nixl.in_process: true that peers can reach all memory of this process", libnixl.ErrInvalid)
	case p.program == "":
		p.program = "/proc/self/exe"
	}
	// The child has another working directory, so that a relative path would mean another file.
	if library := cmp.Or(o.Library, os.Getenv(libnixl.LibraryVariable)); strings.Contains(library, "/") {
		var err error
		if p.options.Library, err = filepath.Abs(library); err != nil {
			return nil, err
		}
	}
	at := memoryBase()
	for _, r := range c.Memory {
		if r.File == nil {
			return nil, fmt.Errorf("%w: the memory of %d bytes at %#x has no file, so that no other process can map it: allocate it as a "+
				"memfd, or accept with nixl.in_process: true that peers can reach all memory of this process",
				libnixl.ErrInvalid, r.Bytes, r.Address)
		}
		p.regions = append(p.regions, mappedRegion{r, at})
		at += (r.Bytes+memoryUnit-1)/memoryUnit*memoryUnit + memoryUnit
	}
	first := make(chan error, 1)
	go p.superviseChild(first)
	select {
	case err := <-first:
		if err != nil {
			return nil, err
		}
		return p, nil
	case <-ctx.Done():
		_ = p.Close()
		return nil, fmt.Errorf("start libnixl's process: %w", context.Cause(ctx))
	}
}

// superviseChild starts a child, and a new one after each has ended. The goroutine keeps its thread, because the kernel
// kills a child when the thread that has started the child ends.
func (p *isolatedHost) superviseChild(first chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(p.stopped)
	for pause := firstPause; ; {
		started := time.Now()
		cmd, c, err := p.startChild()
		if err == nil {
			if first != nil {
				first <- nil
				first = nil
			}
			p.updateState(func() { p.child = c })
			watching := make(chan struct{})
			go func() {
				defer close(watching)
				c.watchHealth()
			}()
			err = c.awaitExit(cmd)
			<-watching
		}
		if first != nil {
			first <- err
			return
		}
		if time.Since(started) >= longLife {
			pause = firstPause
		}
		closed := false
		p.updateState(func() {
			p.child, p.lastEnd, p.nextStart = nil, err, time.Now().Add(pause)
			closed = p.closed
		})
		if closed {
			return
		}
		p.log.Error("libnixl's process has ended: its agents are gone, transfers in flight fail, and it is started anew",
			"err", err, "lived", time.Since(started).Round(time.Millisecond), "pause", pause,
			"remedy", "see the lines of libnixl and UCX before this one; a peer that sends bad metadata can cause this")
		select {
		case <-p.stop:
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, lastPause)
	}
}

func (p *isolatedHost) updateState(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	close(p.changed)
	p.changed = make(chan struct{})
}

// childVariables are the beginnings of the names of environment variables that a child gets, for the library, UCX, the
// loader and the compiler's sanitizers.
var childVariables = []string{"UCX_", "UCS_", "NIXL_", "LD_", "CUDA_", "NVIDIA_", "MLX", "IBV_", "RDMAV_", "KVFERRY_LIBNIXL=", "GORACE=",
	"ASAN_", "LSAN_", "TZ=", "LANG="}

func childEnvironment() []string {
	env := []string{childVariable + "=1", "GOTRACEBACK=none"}
	for _, v := range os.Environ() {
		for _, begin := range childVariables {
			if strings.HasPrefix(v, begin) {
				env = append(env, v)
				break
			}
		}
	}
	return env
}

// startChild starts a child and waits until it has mapped the memory and loaded the library.
func (p *isolatedHost) startChild() (*exec.Cmd, *child, error) {
	failed := func(err error) (*exec.Cmd, *child, error) {
		if errors.Is(err, ErrNoLibrary) {
			return nil, nil, err
		}
		return nil, nil, fmt.Errorf("start libnixl's process (%s): %w", p.program, err)
	}
	ours, theirs, err := socketPair(unix.SOCK_SEQPACKET)
	if err != nil {
		return failed(err)
	}
	file := os.NewFile(uintptr(theirs), "control")
	cmd := exec.Command(p.program)
	cmd.Args = []string{"kvferry-libnixl"}
	cmd.Env = childEnvironment()
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr // Standard output may be read by a program.
	cmd.ExtraFiles = []*os.File{file}             // controlFile
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err = cmd.Start()
	_ = file.Close()
	if err != nil {
		return failed(errors.Join(err, ours.Close()))
	}
	c := &child{host: p, control: ours, process: cmd.Process, exited: make(chan struct{})}
	if err := c.sendSetup(); err != nil {
		c.kill(err)
		return failed(c.awaitExit(cmd))
	}
	return cmd, c, nil
}

// awaitExit waits for the end of the process.
func (c *child) awaitExit(cmd *exec.Cmd) error {
	err := cmd.Wait()
	_ = c.control.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil:
		err = cmp.Or(c.cause, error(errExited))
	case c.cause != nil:
		err = fmt.Errorf("%w: %w", err, c.cause)
	}
	close(c.exited)
	return err
}

var errExited = errors.New("it has exited")

// kill kills the process, which ends later: see exited.
func (c *child) kill(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause == nil {
		c.cause = cause
	}
	_ = c.process.Kill() // Does nothing if the process has been reaped, even if its number is another process's now.
}

// sendSetup sends the memory and waits for the answer.
func (c *child) sendSetup() error {
	setup := setupMessage{Library: c.host.options.Library}
	var files []int
	for _, r := range c.host.regions {
		setup.Regions = append(setup.Regions, setupRegion{Address: r.child, Bytes: r.Bytes, Repeat: r.Repeat})
		files = append(files, int(r.File.Fd()))
	}
	if err := c.control.SetDeadline(time.Now().Add(max(c.host.options.CallTimeout, defaultCallTimeout))); err != nil {
		return err
	}
	if err := sendControl(c.control, &setup, files...); err != nil {
		return err
	}
	var answer setupAnswer
	if err := c.receiveMessage(&answer); err != nil {
		return fmt.Errorf("it does not answer: %w", err)
	}
	switch {
	case answer.NoLibrary:
		return &loadError{answer.Error}
	case answer.Error != "":
		return errors.New(answer.Error)
	}
	c.host.mu.Lock()
	c.host.info = answer.Info
	c.host.mu.Unlock()
	return nil
}

// A loadError is the text of a libnixl.LoadError of the child, which has all that an operator needs.
type loadError struct{ text string }

func (e *loadError) Error() string { return e.text }
func (*loadError) Unwrap() error   { return ErrNoLibrary }

// receiveMessage receives a message of the child, which sends no files.
func (c *child) receiveMessage(into any) error {
	files, err := receiveControl(c.control, into)
	for _, f := range files {
		_ = unix.Close(f)
	}
	return err
}

// watchHealth asks the child again and again whether it is alive, and ends it when the host closes. It returns when the
// child has exited.
func (c *child) watchHealth() {
	limit := c.host.options.CallTimeout
	for {
		select {
		case <-c.exited:
			return
		case <-c.host.stop:
			_ = c.control.Close()
			select {
			case <-c.exited:
			case <-time.After(closeWait):
				c.kill(errors.New("it does not end by itself"))
				<-c.exited
			}
			return
		case <-time.After(limit / 2):
		}
		err := c.control.SetDeadline(time.Now().Add(limit))
		if err == nil {
			err = sendControl(c.control, &controlMessage{})
		}
		if err == nil {
			if err = c.receiveMessage(&controlMessage{}); errors.Is(err, os.ErrDeadlineExceeded) {
				// If this process was frozen and not the child, the answer is there.
				err = errors.Join(c.control.SetDeadline(time.Now().Add(limit/8)), c.receiveMessage(&controlMessage{}))
			}
		}
		if err != nil {
			c.kill(fmt.Errorf("it does not answer within %v: %w", limit, err))
			<-c.exited
			return
		}
	}
}

// socketPair returns a connection for this process and a file for the child.
func socketPair(kind int) (*net.UnixConn, int, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, 0, fmt.Errorf("make a pair of sockets: %w", err)
	}
	ours, err := openSocket(pair[0])
	if err != nil {
		return nil, 0, errors.Join(err, unix.Close(pair[1]))
	}
	return ours, pair[1], nil
}

// currentChild returns the child that is up, and waits a little for one.
func (p *isolatedHost) currentChild() (*child, error) {
	limit := time.NewTimer(startWait)
	defer limit.Stop()
	for {
		p.mu.Lock()
		c, changed, lastEnd, next, closed := p.child, p.changed, p.lastEnd, p.nextStart, p.closed
		p.mu.Unlock()
		switch {
		case closed:
			return nil, fmt.Errorf("%w: the host is closed", libnixl.ErrClosed)
		case c != nil:
			select {
			case <-c.exited: // The goroutine that supervises it has not seen this yet.
			default:
				return c, nil
			}
		case time.Until(next) > startWait:
			return nil, fmt.Errorf("%w (%w), and is started anew in %v", ErrEnded, lastEnd, time.Until(next).Round(time.Second))
		}
		select {
		case <-changed:
		case <-limit.C:
			return nil, fmt.Errorf("%w (%w), and no other one has started in %v", ErrEnded, cmp.Or(lastEnd, error(errExited)), startWait)
		}
	}
}

// PeerAddress implements Host.
func (p *isolatedHost) PeerAddress(address uint64) uint64 {
	if at, ok := p.translate(address, 0); ok {
		return at
	}
	return 0
}

// translate returns the child's address of memory of this process.
func (p *isolatedHost) translate(address, bytes uint64) (uint64, bool) {
	for i := range p.regions {
		r := &p.regions[i]
		if offset := address - r.Address; address >= r.Address && offset < r.Bytes && bytes <= r.Bytes-offset {
			return r.child + offset, true
		}
	}
	return 0, false
}

// Info implements Host.
func (p *isolatedHost) Info() libnixl.Info {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.info
}

// Close implements Host.
func (p *isolatedHost) Close() error {
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		close(p.stop)
	}
	p.mu.Unlock()
	<-p.stopped
	return nil
}
