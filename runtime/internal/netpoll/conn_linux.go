package netpoll

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A Conn is a stream connection that the poller waits for, and implements net.Conn.
type Conn struct {
	network       string
	local, remote net.Addr
	poller        *poller

	// mu is held for reading while the descriptor is used, which never blocks, and for writing while it is closed.
	mu     sync.RWMutex
	closed bool
	fd     int

	reading, writing direction
	payoff           payoff
}

// A direction is a direction of a connection: reading or writing. It wakes the goroutine that waits to read or to
// write.
type direction struct {
	turn  sync.Mutex    // held by the goroutine that reads or writes, also while waiting
	ready chan struct{} // has a token when reading or writing may be possible

	mu       sync.Mutex
	deadline time.Time // the deadline; zero if there is none
	timer    *time.Timer
	expired  atomic.Bool // the deadline has passed
}

// Take lets the poller wait for conn, and returns the connection to use instead of conn. The result is conn itself if
// that is not possible: if conn is not a socket of this system, or if the process has no file left for the poller. For
// up to poll after each message that leaves, the poller polls for replies before sleeping. If poll is 0, Take returns
// conn.
func Take(conn net.Conn, poll time.Duration) net.Conn {
	of, ok := conn.(syscall.Conn)
	// With a single processor, polling would keep the processor from the goroutine that is to reply.
	if !ok || poll <= 0 || runtime.GOMAXPROCS(0) == 1 {
		return conn
	}
	raw, err := of.SyscallConn()
	if err != nil {
		return conn
	}
	// A duplicate of the descriptor, because Go's poller removes the original descriptor when that is closed.
	fd := -1
	if raw.Control(func(theirs uintptr) {
		fd, err = unix.FcntlInt(theirs, unix.F_DUPFD_CLOEXEC, 0)
	}) != nil || err != nil {
		return conn
	}
	c := &Conn{network: conn.LocalAddr().Network(), local: conn.LocalAddr(), remote: conn.RemoteAddr(), fd: fd,
		payoff: payoff{poll: poll}}
	c.payoff.score.Store(maxScore)
	c.reading.ready, c.writing.ready = make(chan struct{}, 1), make(chan struct{}, 1)
	if !addToShared(c) {
		_ = unix.Close(fd)
		return conn
	}
	_ = conn.Close()
	return c
}

// Read implements net.Conn.
func (c *Conn) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	n, err := c.doInTurn(&c.reading, func(fd int) (int, error) { return syscall.Read(fd, b) })
	if n == 0 && err == nil {
		return 0, io.EOF
	}
	return n, c.wrapError("read", err)
}

// Write implements net.Conn.
func (c *Conn) Write(b []byte) (int, error) {
	c.writing.turn.Lock() // Held for all of b, so that no concurrent write comes between the parts of b.
	defer c.writing.turn.Unlock()
	return c.writeInTurn(b)
}

// writeInTurn writes b for a caller that holds the turn to write.
func (c *Conn) writeInTurn(b []byte) (int, error) {
	done := 0
	for {
		n, err := c.retryUntilReady(&c.writing, func(fd int) (int, error) { return syscall.Write(fd, b[done:]) })
		done += n
		if err != nil || done == len(b) {
			c.onSent(n)
			return done, c.wrapError("write", err)
		}
	}
}

// WriteRights writes b over a Unix socket, whether or not [Take] wrapped the socket, and passes descriptors with the
// first byte.
func WriteRights(conn net.Conn, b []byte, fds ...int) error {
	switch c := conn.(type) {
	case *Conn:
		return c.writeRights(b, fds...)
	case *net.UnixConn:
		n, _, err := c.WriteMsgUnix(b, unix.UnixRights(fds...), nil)
		if err == nil && n < len(b) {
			_, err = c.Write(b[n:])
		}
		return err
	}
	return fmt.Errorf("pass file descriptors: %T is not a Unix socket", conn)
}

func (c *Conn) writeRights(b []byte, fds ...int) error {
	rights := unix.UnixRights(fds...)
	c.writing.turn.Lock()
	defer c.writing.turn.Unlock()
	n, err := c.retryUntilReady(&c.writing, func(fd int) (int, error) {
		return unix.SendmsgN(fd, b, rights, nil, unix.MSG_NOSIGNAL)
	})
	if err != nil {
		return c.wrapError("write", err)
	}
	c.onSent(n)
	if n < len(b) {
		_, err = c.writeInTurn(b[n:])
	}
	return err
}

func (c *Conn) onSent(n int) {
	if n > 0 && c.payoff.recordSent(monotonicNow()) {
		c.poller.pollFor(c.payoff.poll)
	}
}

// doInTurn reads or writes when the caller's turn has come.
func (c *Conn) doInTurn(s *direction, op func(fd int) (int, error)) (int, error) {
	s.turn.Lock()
	defer s.turn.Unlock()
	return c.retryUntilReady(s, op)
}

// withDescriptor calls op with the descriptor, unless the connection is closed.
func (c *Conn) withDescriptor(op func(fd int) (int, error)) (int, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if err := c.checkOpen(); err != nil {
		return 0, err
	}
	return op(c.fd)
}

// retryUntilReady reads or writes, and waits where the system call would block. The caller holds the turn.
func (c *Conn) retryUntilReady(s *direction, op func(fd int) (int, error)) (int, error) {
	for {
		if s.expired.Load() {
			return 0, os.ErrDeadlineExceeded
		}
		n, err := c.withDescriptor(op)
		switch {
		case err == nil:
			return n, nil
		case errors.Is(err, syscall.EAGAIN):
			<-s.ready
		case !errors.Is(err, syscall.EINTR):
			return 0, err
		}
	}
}

// checkOpen returns net.ErrClosed once the connection is closed. The caller holds the mutex.
func (c *Conn) checkOpen() error {
	if c.closed {
		return net.ErrClosed
	}
	return nil
}

func (c *Conn) wrapError(op string, err error) error {
	if err == nil {
		return nil
	}
	if errno, ok := err.(syscall.Errno); ok {
		err = os.NewSyscallError(op, errno)
	}
	return &net.OpError{Op: op, Net: c.network, Source: c.local, Addr: c.remote, Err: err}
}

// Close implements net.Conn. Waiting reads and writes end with net.ErrClosed.
func (c *Conn) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return c.wrapError("close", net.ErrClosed)
	}
	c.closed = true
	removeFromShared(c)
	err := unix.Close(c.fd)
	c.mu.Unlock()
	for _, s := range []*direction{&c.reading, &c.writing} {
		s.setDeadline(time.Time{})
		s.wakeWaiter()
	}
	return c.wrapError("close", err)
}

// CloseWrite shuts down the writing side of the connection.
func (c *Conn) CloseWrite() error {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if err := c.checkOpen(); err != nil {
		return c.wrapError("close", err)
	}
	return c.wrapError("close", unix.Shutdown(c.fd, unix.SHUT_WR))
}

// SetReadBuffer sets the size of the kernel's buffer of received bytes.
func (c *Conn) SetReadBuffer(bytes int) error { return c.setBuffer(unix.SO_RCVBUF, bytes) }

// SetWriteBuffer sets the size of the kernel's buffer of bytes to send.
func (c *Conn) SetWriteBuffer(bytes int) error { return c.setBuffer(unix.SO_SNDBUF, bytes) }

func (c *Conn) setBuffer(which, bytes int) error {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if err := c.checkOpen(); err != nil {
		return c.wrapError("set", err)
	}
	return c.wrapError("set", unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, which, bytes))
}

// LocalAddr implements net.Conn.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr implements net.Conn.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline implements net.Conn.
func (c *Conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline implements net.Conn.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.setDeadline(&c.reading, t) }

// SetWriteDeadline implements net.Conn.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.setDeadline(&c.writing, t) }

func (c *Conn) setDeadline(s *direction, t time.Time) error {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if err := c.checkOpen(); err != nil {
		return c.wrapError("set", err)
	}
	s.setDeadline(t)
	return nil
}

// wakeWaiter makes the waiting goroutine try again.
func (s *direction) wakeWaiter() {
	select {
	case s.ready <- struct{}{}:
	default: // A token is there already.
	}
}

// setDeadline changes the deadline, also for waits that have begun.
func (s *direction) setDeadline(t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadline = t
	remaining := time.Until(t)
	s.expired.Store(!t.IsZero() && remaining <= 0)
	switch {
	case t.IsZero():
		if s.timer != nil {
			s.timer.Stop()
		}
	case remaining <= 0:
		s.wakeWaiter()
	case s.timer == nil:
		s.timer = time.AfterFunc(remaining, s.onDeadline)
	default:
		s.timer.Reset(remaining)
	}
}

// onDeadline runs when a deadline may have passed. The deadline may have been changed by then.
func (s *direction) onDeadline() {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch remaining := time.Until(s.deadline); {
	case s.deadline.IsZero():
	case remaining > 0: // The deadline was just moved, or the clock went back.
		s.timer.Reset(remaining)
	default:
		s.expired.Store(true)
		s.wakeWaiter()
	}
}
