//go:build cgo && linux

package libzmq

import (
	"fmt"
	"os"
	"syscall"
	"time"
)

// eventsAtOnce is the largest number of ready sockets that a call finds; the next call finds further sockets.
const eventsAtOnce = 256

// pastDeadline is a deadline that has passed.
var pastDeadline = time.Now()

// waiter sleeps, in Go's network poller and without a thread, until the ZMQ_FD of a socket is ready or wakeUp is
// called. The poller watches one file, an epoll instance that holds all ZMQ_FDs; nested like this, the instance becomes
// ready when any ZMQ_FD does. Only wakeUp may be called from all goroutines.
type waiter struct {
	epoll  int
	file   *os.File // owns epoll
	raw    syscall.RawConn
	events [eventsAtOnce]syscall.EpollEvent
}

func newWaiter() (*waiter, error) {
	epoll, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	// os.NewFile gives a file to the network poller only in non-blocking mode.
	if err := syscall.SetNonblock(epoll, true); err != nil {
		_ = syscall.Close(epoll)
		return nil, fmt.Errorf("set epoll non-blocking: %w", err)
	}
	w := &waiter{epoll: epoll, file: os.NewFile(uintptr(epoll), "epoll")}
	// Without the poller there are no deadlines, hence no wake: find out now.
	if err := w.file.SetReadDeadline(time.Time{}); err != nil {
		_ = w.file.Close()
		return nil, fmt.Errorf("hand epoll to the network poller: %w", err)
	}
	if w.raw, err = w.file.SyscallConn(); err != nil {
		_ = w.file.Close()
		return nil, fmt.Errorf("reach epoll through the network poller: %w", err)
	}
	return w, nil
}

func (w *waiter) addFD(fd int) error {
	return syscall.EpollCtl(w.epoll, syscall.EPOLL_CTL_ADD, fd,
		&syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(fd)})
}

func (w *waiter) removeFD(fd int) error {
	return syscall.EpollCtl(w.epoll, syscall.EPOLL_CTL_DEL, fd, nil)
}

// wakeUp ends the present or the next wait.
func (w *waiter) wakeUp() { _ = w.file.SetReadDeadline(pastDeadline) }

// resetWake makes the waiter able to wait again after a wake. Look for the reason of the wake after this call, not
// before: a wake in between would be lost.
func (w *waiter) resetWake() { _ = w.file.SetReadDeadline(time.Time{}) }

// readyNow returns the files that are ready now.
func (w *waiter) readyNow() []syscall.EpollEvent {
	for {
		n, err := syscall.EpollWait(w.epoll, w.events[:], 0)
		switch {
		case err == nil:
			return w.events[:n]
		case err != syscall.EINTR:
			panic(fmt.Sprintf("BUG: epoll_wait on our own instance: %v", err))
		}
	}
}

// awaitReady returns the files that are ready once there are some, or none after a wake.
func (w *waiter) awaitReady() (ready []syscall.EpollEvent) {
	// The error is the wake.
	_ = w.raw.Read(func(uintptr) bool {
		ready = w.readyNow()
		return len(ready) > 0
	})
	return ready
}

func (w *waiter) close() error { return w.file.Close() }
