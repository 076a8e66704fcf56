package netpoll

import (
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxEvents is the number of events that a poll may find.
const maxEvents = 64

// A poller waits for all connections that were passed to Take, and exists while there are connections.
type poller struct {
	epoll, wakeFD int // wakeFD is an eventfd that wakes the poller
	// The poller sleeps in the poller of Go's runtime, so that the processor can run goroutines meanwhile. Go's poller
	// waits for the gate, a second epoll instance, which reports events of the first instance only while our poller
	// sleeps. Otherwise each event would wake a thread of the Go runtime while our poller polls.
	gate    *os.File
	sleeper syscall.RawConn // of gate

	mu      sync.Mutex
	conns   map[int32]*Conn
	stopped bool

	pollUntil atomic.Int64  // polls until then, by clock
	asleep    atomic.Bool   // sleeps or is about to
	ended     chan struct{} // closed when run has ended
}

// shared is the poller of the process, which begins with the first connection and ends with the last connection.
var shared struct {
	mu sync.Mutex // held while connections are added and removed
	p  *poller
}

// addToShared adds a connection to the shared poller, and returns false if that is not possible.
func addToShared(c *Conn) bool {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	p := shared.p
	if p == nil {
		var err error
		if p, err = newPoller(); err != nil {
			return false
		}
	}
	c.poller = p
	if p.addConn(c) != nil {
		if shared.p == nil {
			p.closeDescriptors()
		}
		return false
	}
	if shared.p == nil {
		shared.p = p
		go p.runLoop()
	}
	return true
}

// removeFromShared removes a connection, while the descriptor is still open, from the poller.
func removeFromShared(c *Conn) {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if c.poller.removeConn(c) {
		shared.p = nil
	}
}

func newPoller() (*poller, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	p := &poller{epoll: epoll, wakeFD: -1, conns: map[int32]*Conn{}, ended: make(chan struct{})}
	if err = p.openDescriptors(); err != nil {
		p.closeDescriptors()
		return nil, err
	}
	return p, nil
}

func (p *poller) openDescriptors() error {
	gate, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return err
	}
	if err := unix.SetNonblock(gate, true); err != nil {
		return errors.Join(err, unix.Close(gate))
	}
	p.gate = os.NewFile(uintptr(gate), "epoll") // The descriptor does not block, so Go's poller can wait.
	if p.sleeper, err = p.gate.SyscallConn(); err != nil {
		return err
	}
	if err := unix.EpollCtl(gate, unix.EPOLL_CTL_ADD, p.epoll, &unix.EpollEvent{}); err != nil {
		return err
	}
	if p.wakeFD, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return err
	}
	return p.watchDescriptor(p.wakeFD, unix.EPOLLIN)
}

// watchDescriptor makes the kernel report once, each time that one of the events becomes possible on fd.
func (p *poller) watchDescriptor(fd int, events uint32) error {
	return unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events | unix.EPOLLET, Fd: int32(fd)})
}

func (p *poller) closeDescriptors() {
	if p.wakeFD >= 0 {
		_ = unix.Close(p.wakeFD)
	}
	if p.gate != nil {
		_ = p.gate.Close()
	}
	_ = unix.Close(p.epoll)
}

func (p *poller) addConn(c *Conn) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.watchDescriptor(c.fd, unix.EPOLLIN|unix.EPOLLOUT|unix.EPOLLRDHUP); err != nil {
		return err
	}
	p.conns[int32(c.fd)] = c
	return nil
}

// removeConn removes a connection. After the last connection the poller ends, and the result is true.
func (p *poller) removeConn(c *Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = unix.EpollCtl(p.epoll, unix.EPOLL_CTL_DEL, c.fd, nil)
	delete(p.conns, int32(c.fd))
	if len(p.conns) > 0 {
		return false
	}
	p.stopped = true
	p.writeWakeEvent()
	return true
}

// writeWakeEvent wakes the poller. The caller holds the mutex.
func (p *poller) writeWakeEvent() {
	one := binary.NativeEndian.AppendUint64(nil, 1)
	_, _ = unix.Write(p.wakeFD, one)
}

// pollFor makes the poller poll for the time d before sleeping again.
func (p *poller) pollFor(d time.Duration) {
	until := monotonicNow() + int64(d)
	for {
		current := p.pollUntil.Load()
		if current >= until {
			return
		}
		if p.pollUntil.CompareAndSwap(current, until) {
			break
		}
	}
	if p.asleep.CompareAndSwap(true, false) {
		p.wakeUp()
	}
}

// wakeUp wakes the poller, unless the poller has ended: the descriptor may belong to a different file by then.
func (p *poller) wakeUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.stopped {
		p.writeWakeEvent()
	}
}

// runLoop wakes readers and writers until there are no connections left.
func (p *poller) runLoop() {
	defer close(p.ended)
	defer p.closeDescriptors()
	var found [maxEvents]unix.EpollEvent
	for {
		n := p.waitForEvents(&found)
		if p.wakeWaiters(found[:n]) {
			return
		}
		if n > 0 {
			runtime.Gosched() // Lets the woken goroutines run on this thread before the thread sleeps.
		}
	}
}

// wakeWaiters wakes the goroutines that wait for the found events, and reports whether the poller has ended.
func (p *poller) wakeWaiters(found []unix.EpollEvent) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range found {
		c := p.conns[e.Fd]
		if c == nil {
			continue // The eventfd, or a connection that was closed.
		}
		if e.Events&^unix.EPOLLOUT != 0 {
			c.payoff.recordArrival(monotonicNow())
			c.reading.wakeWaiter()
		}
		if e.Events&^unix.EPOLLIN != 0 {
			c.writing.wakeWaiter()
		}
	}
	return p.stopped
}

// waitForEvents waits for events and returns their number: without sleeping while the poller polls, otherwise after
// sleeping until the first event.
func (p *poller) waitForEvents(found *[maxEvents]unix.EpollEvent) int {
	for p.pollUntil.Load() > 0 {
		if n := p.pollOnce(found); n > 0 {
			return n
		}
		if until := p.pollUntil.Load(); monotonicNow() >= until {
			p.pollUntil.CompareAndSwap(until, 0)
			continue
		}
		// Ready processes run first, then ready goroutines, because the peer that is to reply may need this core.
		// While all of Go's processors have goroutines to run, including this goroutine, Go's own poller checks its
		// connections every 10 ms.
		_, _, _ = syscall.RawSyscall(syscall.SYS_SCHED_YIELD, 0, 0, 0)
		runtime.Gosched()
	}
	n := 0
	p.asleep.Store(true)
	err := p.sleeper.Read(func(gate uintptr) bool {
		p.setGate(gate, unix.EPOLLIN)
		n = p.pollOnce(found)
		awake := n > 0 || p.pollUntil.Load() > 0
		if awake {
			p.setGate(gate, 0)
		}
		return awake
	})
	// The gate could not be added to Go's poller when it was made, because that had no room.
	if err != nil {
		n, _ = unix.EpollWait(p.epoll, found[:], -1)
	}
	p.asleep.Store(false)
	return max(n, 0)
}

// setGate makes the gate report these events from now on, or none if events is 0.
func (p *poller) setGate(gate uintptr, events uint32) {
	_ = unix.EpollCtl(int(gate), unix.EPOLL_CTL_MOD, p.epoll, &unix.EpollEvent{Events: events})
}

// pollOnce returns the number of events that have happened.
func (p *poller) pollOnce(found *[maxEvents]unix.EpollEvent) int {
	// A raw call, because for so short a call the thread should keep Go's processor.
	n, _, errno := syscall.RawSyscall6(syscall.SYS_EPOLL_PWAIT, uintptr(p.epoll), uintptr(unsafe.Pointer(found)),
		maxEvents, 0, 0, 0)
	if errno != 0 {
		return 0
	}
	return int(n)
}
