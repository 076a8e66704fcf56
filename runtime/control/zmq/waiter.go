//go:build cgo && linux

package zmq

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// eventsAtOnce is the most sockets that one look finds ready; the others are found by the next.
const eventsAtOnce = 256

// waiter sleeps until a socket's ZMQ_FD is ready or somebody calls wake. Only wake may be called from
// other goroutines.
//
// It sleeps in a system call of its own and not in Go's network poller. The kernel then wakes the very
// thread that receives, and that one most often still has its place in Go's scheduler; by way of the
// poller one thread wakes the next, which costs as much as the rest of a round trip. The price is one
// thread for each transport.
type waiter struct {
	epoll  int
	bell   *os.File // an eventfd; a File, because a wake may come after close
	bellFd int
	events [eventsAtOnce]syscall.EpollEvent
}

func newWaiter() (*waiter, error) {
	epoll, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	// In blocking mode, so that os.NewFile leaves it out of the network poller. It never blocks: it is
	// read only when it was rung.
	bell, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		_ = syscall.Close(epoll)
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	w := &waiter{epoll: epoll, bell: os.NewFile(uintptr(bell), "bell"), bellFd: bell}
	if err := w.add(bell); err != nil {
		_ = w.close()
		return nil, fmt.Errorf("watch an eventfd: %w", err)
	}
	return w, nil
}

func (w *waiter) add(fd int) error {
	return syscall.EpollCtl(w.epoll, syscall.EPOLL_CTL_ADD, fd,
		&syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(fd)})
}

func (w *waiter) remove(fd int) error {
	return syscall.EpollCtl(w.epoll, syscall.EPOLL_CTL_DEL, fd, nil)
}

// wake ends the present or the next wait.
func (w *waiter) wake() {
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	_, _ = w.bell.Write(one[:]) // It fails only after close, when nobody waits.
}

// ready returns the files that are ready now; wait waits until some are, or until a wake.
func (w *waiter) ready() []syscall.EpollEvent { return w.look(0) }
func (w *waiter) wait() []syscall.EpollEvent  { return w.look(-1) }

func (w *waiter) look(milliseconds int) []syscall.EpollEvent {
	for {
		n, err := syscall.EpollWait(w.epoll, w.events[:], milliseconds)
		switch {
		case err == nil:
			w.hear(w.events[:n])
			return w.events[:n]
		case err != syscall.EINTR:
			panic(fmt.Sprintf("BUG: epoll_wait on our own instance: %v", err))
		}
	}
}

// hear makes the waiter able to wait again after a wake. What the wake was for must be looked at after,
// not before.
func (w *waiter) hear(ready []syscall.EpollEvent) {
	for i := range ready {
		if int(ready[i].Fd) == w.bellFd {
			var count [8]byte
			_, _ = w.bell.Read(count[:]) // It cannot fail: it was rung and nobody else reads.
		}
	}
}

func (w *waiter) close() error { return errors.Join(w.bell.Close(), syscall.Close(w.epoll)) }
