//go:build cgo && linux

package zmq

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	zmq4 "github.com/pebbe/zmq4"
)

// budget is the most messages received from one socket before the others and the queue get their turn.
const budget = 256

// socket is one ZeroMQ socket, in the reactor's hands.
type socket struct {
	*zmq4.Socket
	fd    int
	owner receiver
	dirty bool // in the reactor's list of sockets to look at
	// wantsOut says that something waits until it can be sent.
	wantsOut bool
	closed   bool
}

// receiver is what one kind of socket does with what it received. receive takes what is there, at most
// budget messages, and says whether there may be more. Stopping before EAGAIN and saying false
// would sleep on messages: the signal is consumed.
type receiver interface {
	receive() (more bool)
}

// newSocket makes a socket with the bounds of the configuration. ipv6 says whether its addresses may be
// of that family.
func (r *reactor) newSocket(kind zmq4.Type, ipv6 bool) (*socket, error) {
	raw, err := r.context.NewSocket(kind)
	if err != nil {
		return nil, fmt.Errorf("new socket: %w", err)
	}
	c := &r.config
	err = errors.Join(
		raw.SetLinger(c.Linger),
		raw.SetSndhwm(c.HighWater),
		raw.SetRcvhwm(c.HighWater),
		raw.SetMaxmsgsize(int64(c.MaxMessage)),
		raw.SetIpv6(ipv6),
		raw.SetReconnectIvl(c.Reconnect),
		raw.SetReconnectIvlMax(c.ReconnectMax),
		raw.SetConnectTimeout(c.ConnectTimeout),
		raw.SetHeartbeatIvl(c.Heartbeat),
		raw.SetHeartbeatTimeout(c.HeartbeatTimeout),
	)
	if err != nil {
		_ = raw.Close()
		return nil, fmt.Errorf("set options of a socket: %w", err)
	}
	return &socket{Socket: raw}, nil
}

// watch lets the reactor look at s whenever it may have something.
func (r *reactor) watch(s *socket, owner receiver) error {
	fd, err := s.GetFd()
	if err != nil {
		return fmt.Errorf("file of a socket: %w", err)
	}
	if err := r.waiter.add(fd); err != nil {
		return fmt.Errorf("watch a socket: %w", err)
	}
	s.fd, s.owner = fd, owner
	r.sockets[fd] = s
	r.touch(s)
	return nil
}

// touch notes that something was done to s, which may have consumed its signal.
func (r *reactor) touch(s *socket) {
	if !s.dirty && !s.closed {
		s.dirty = true
		r.dirty = append(r.dirty, s)
	}
}

// discard closes s. What it has not sent gets linger to leave.
func (r *reactor) discard(s *socket, linger time.Duration) {
	if s.owner != nil {
		delete(r.sockets, s.fd)
		_ = r.waiter.remove(s.fd)
	}
	s.closed = true
	_ = s.SetLinger(linger)
	_ = s.Close()
}

// frames receives one message into parts and returns how many frames it had; those beyond parts are
// dropped. ok is false when there is none. ZeroMQ hands over whole messages only.
func (s *socket) frames(parts [][]byte) (n int, ok bool) {
	for {
		part, err := s.RecvBytes(zmq4.DONTWAIT)
		if err != nil {
			return n, n > 0
		}
		if n < len(parts) {
			parts[n] = part
		}
		n++
		if more, err := s.GetRcvmore(); err != nil || !more {
			return n, true
		}
	}
}

// mayGoOn says whether a message is there, or can be sent that waits. While it says no, the next change will be
// signalled.
func (s *socket) mayGoOn() bool {
	state, err := s.GetEvents()
	return err != nil || state&zmq4.POLLIN != 0 || s.wantsOut && state&zmq4.POLLOUT != 0
}

// send hands over one message without waiting. It fails as a whole: once the first frame is taken, so are the others.
func (s *socket) send(parts ...[]byte) error {
	for i, part := range parts {
		flags := zmq4.DONTWAIT
		if i < len(parts)-1 {
			flags |= zmq4.SNDMORE
		}
		if _, err := s.SendBytes(part, flags); err != nil {
			return fmt.Errorf("send frame %d of %d: %w", i+1, len(parts), err)
		}
	}
	return nil
}

func isErrno(err error, errno syscall.Errno) bool {
	var e zmq4.Errno
	return errors.As(err, &e) && e == zmq4.Errno(errno)
}
