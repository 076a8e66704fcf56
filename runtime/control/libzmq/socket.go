//go:build cgo && linux

package libzmq

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"time"

	zmq4 "github.com/pebbe/zmq4"
)

// receiveBudget is the largest number of messages that are received from a socket before the remaining sockets and the
// queue get a turn.
const receiveBudget = 256

// socket wraps a ZeroMQ socket, and is used under the reactor's lock.
type socket struct {
	*zmq4.Socket
	fd     int
	owner  receiver
	dirty  bool // in the reactor's list of sockets to look at
	closed bool
	// wantsOut says that messages wait until the socket accepts messages.
	wantsOut bool
	scratch  [][]byte
}

// receiver handles the messages of a kind of socket. receiveMessages takes the messages that are there, at most budget,
// and reports whether there may be more. An implementation that stops before EAGAIN and returns false would leave
// messages unread without a signal, because the signal is consumed.
type receiver interface {
	receiveMessages() (more bool)
}

// newSocket makes a socket with the bounds of the configuration. ipv6 says whether addresses may be of that family.
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
		raw.SetBacklog(c.Backlog),
		raw.SetHandshakeIvl(c.Handshake),
		raw.SetReconnectIvl(c.Reconnect),
		raw.SetReconnectIvlMax(c.ReconnectMax),
		raw.SetConnectTimeout(c.ConnectTimeout),
		raw.SetHeartbeatIvl(c.Heartbeat),
		raw.SetHeartbeatTimeout(c.HeartbeatTimeout),
	)
	if err == nil && kind == zmq4.PUSH {
		err = raw.SetImmediate(true) // only a connection that is up accepts messages
	}
	if err == nil && kind == zmq4.ROUTER {
		err = raw.SetRouterMandatory(1) // otherwise a reply to a client that is gone would vanish uncounted
	}
	if err != nil {
		_ = raw.Close()
		return nil, fmt.Errorf("set options of a socket: %w", err)
	}
	return &socket{Socket: raw}, nil
}

// watchSocket makes the reactor look at s whenever s signals.
func (r *reactor) watchSocket(s *socket, owner receiver) error {
	fd, err := s.GetFd()
	if err != nil {
		return fmt.Errorf("file of a socket: %w", err)
	}
	if err := r.waiter.addFD(fd); err != nil {
		return fmt.Errorf("watch a socket: %w", err)
	}
	s.fd, s.owner = fd, owner
	r.sockets[fd] = s
	r.markDirty(s)
	return nil
}

// markDirty notes an operation on s that may have consumed the signal.
func (r *reactor) markDirty(s *socket) {
	if !s.dirty && !s.closed {
		s.dirty = true
		r.dirty = append(r.dirty, s)
	}
}

// closeSocket closes s. Unsent messages get linger to leave.
func (r *reactor) closeSocket(s *socket, linger time.Duration) {
	if s.owner != nil {
		delete(r.sockets, s.fd)
		_ = r.waiter.removeFD(s.fd)
	}
	s.closed = true
	_ = s.SetLinger(linger)
	_ = s.Close()
}

// peerAddress is the property of a message that has the address of the sender.
const peerAddress = "Peer-Address"

// A message is a received message. The frames are the first frames that fit the bounds; fault says why there are fewer
// than the peer sent, or is nil.
type message struct {
	frames [][]byte // valid until the next message; the bytes of each frame may be kept
	from   netip.Addr
	fault  error
}

// nextMessage receives a message of at most maxFrames and maxBytes; the rest is dropped. ok is false if there is none.
// libzmq hands over whole messages only, and holds all frames of a message until then. withAddress asks for the
// sender's address.
func (s *socket) nextMessage(maxFrames, maxBytes int, withAddress bool) (m message, ok bool) {
	s.scratch = s.scratch[:0]
	for n, size, more := 0, 0, true; more; n++ {
		frame, err := []byte(nil), error(nil)
		if withAddress && n == 0 {
			var address map[string]string
			frame, address, err = s.RecvBytesWithMetadata(zmq4.DONTWAIT, peerAddress)
			m.from = parseAddress(address[peerAddress])
		} else {
			frame, err = s.RecvBytes(zmq4.DONTWAIT)
		}
		if err != nil {
			return message{}, false
		}
		if more, err = s.GetRcvmore(); err != nil {
			more = false
		}
		size += len(frame)
		switch {
		case m.fault != nil:
		case n >= maxFrames:
			m.fault = fmt.Errorf("a message of more than %d frames", maxFrames)
		case size > maxBytes:
			m.fault = fmt.Errorf("a message of more than %d bytes: raise limits.message_bytes here, or send less at once",
				maxBytes)
		default:
			s.scratch = append(s.scratch, frame)
		}
	}
	m.frames = s.scratch
	return m, true
}

func parseAddress(address string) netip.Addr {
	at, err := netip.ParseAddr(address)
	if err != nil {
		return netip.Addr{}
	}
	return at.Unmap()
}

// hasWork reports whether a message is there, or room for messages that wait. While the result is false, the next
// message will be signalled.
func (s *socket) hasWork() bool {
	state, err := s.GetEvents()
	return err != nil || state&zmq4.POLLIN != 0 || s.wantsOut && state&zmq4.POLLOUT != 0
}

// sendFrames hands over a message without waiting. The call fails as a whole: once the first frame is accepted, so are
// all further frames.
func (s *socket) sendFrames(frames [][]byte) error {
	for i, frame := range frames {
		flags := zmq4.DONTWAIT
		if i < len(frames)-1 {
			flags |= zmq4.SNDMORE
		}
		if _, err := s.SendBytes(frame, flags); err != nil {
			return fmt.Errorf("send frame %d of %d: %w", i+1, len(frames), err)
		}
	}
	return nil
}

func isErrno(err error, errno syscall.Errno) bool {
	var e zmq4.Errno
	return errors.As(err, &e) && e == zmq4.Errno(errno)
}
