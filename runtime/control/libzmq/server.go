//go:build cgo && linux

package libzmq

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"syscall"

	zmq4 "github.com/pebbe/zmq4"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/control"
	"github.com/kvferry/kvferry/runtime/control/internal/zeromq"
	"github.com/kvferry/kvferry/runtime/internal/door"
)

// route is the way back to the peer that sent a request: a ROUTER, by the position among the servers, and the envelope
// in front of the reply, which begins with the frame that names the client's connection.
type route struct {
	server   int
	channel  effects.Channel
	envelope [][]byte
}

// server receives the messages of a served channel.
type server struct {
	*socket
	reactor *reactor
	channel effects.Channel
	index   int // the position among the servers
}

func (s *server) receiveMessages() (more bool) {
	frames := zeromq.MaxRequestFrames(s.channel)
	if s.channel.HasReplies() {
		frames++ // the client's name, which the ROUTER puts first
	}
	for range receiveBudget {
		m, ok := s.nextMessage(frames, s.reactor.config.MaxMessage, true)
		if !ok {
			return false
		}
		if s.channel.HasReplies() {
			s.takeRequest(m)
		} else {
			s.takeMessages(m)
		}
	}
	return true
}

// takeRequest posts a request; the frames before the body are kept as the route of the reply. A malformed request is
// posted with an empty body. That is not a message of any channel, so the machine replies with an error and the peer
// does not wait until the timeout.
func (s *server) takeRequest(m message) {
	r := s.reactor
	client := m.frames[0]
	envelope, body, err := zeromq.CutRequest(s.channel, m.frames[1:])
	if m.fault != nil {
		err = m.fault
	}
	if err != nil {
		body = nil
		s.logMalformed(m.from, err)
	}
	replyRoute := route{server: s.index, channel: s.channel, envelope: append([][]byte{client}, envelope...)}
	request, _, evicted := r.requests.Add(replyRoute)
	if evicted {
		r.stats.requestsEvicted.Add(1)
	}
	s.postReceived(&effects.Received{Conn: r.clients.connFor(s.index, client, m.from, r.nextConn), Request: request, Body: body}, m)
}

// takeMessages posts one-way messages. If the peer combined several and there were too many, the messages that fit the
// limits are whole and are posted.
func (s *server) takeMessages(m message) {
	several := s.channel.Framing() == effects.Several
	if m.fault != nil || len(m.frames) != 1 && !several {
		err := m.fault
		if err == nil {
			err = fmt.Errorf("the message has %d frames instead of 1", len(m.frames))
		}
		s.logMalformed(m.from, err)
		if !several {
			return
		}
	}
	conn := s.reactor.nextConn()
	for _, body := range m.frames {
		s.postReceived(&effects.Received{Conn: conn, Body: body}, m)
	}
}

func (s *server) postReceived(ev *effects.Received, m message) {
	ev.Origin, ev.Channel = zeromq.OriginOf(door.HostOf(m.from)), s.channel
	s.reactor.sink.Post(ev)
}

func (s *server) logMalformed(from netip.Addr, err error) {
	s.reactor.stats.malformed.Add(1)
	s.reactor.limitedLog.Warn("a message is malformed", from.String(), "channel", s.channel.String(), "err", err)
}

// sendReply sends the reply to a request, or drops and counts the reply if the peer cannot be reached any more.
func (r *reactor) sendReply(request effects.Request, body []byte) {
	replyRoute, found := r.requests.Take(request)
	if !found || !zeromq.IsBody(replyRoute.channel, body) {
		r.stats.repliesDropped.Add(1)
		return
	}
	r.startMessage(replyRoute.envelope...)
	r.addBody(replyRoute.channel, body)
	// The ROUTER refuses the first frame if the client is gone or does not read.
	s := r.listening[replyRoute.server]
	if err := s.sendFrames(r.frames); err != nil {
		r.stats.repliesDropped.Add(1)
	}
	r.markDirty(s)
}

// bindServer binds a server, and returns the server with the port that was bound; the host stays the configured name,
// because that is what peers are given.
func (r *reactor) bindServer(index int, s control.Server, t *transport) (control.Server, error) {
	what := zeromq.DescribeServer(s)
	switch {
	case !zeromq.SupportsChannel(s.Channel):
		return s, zeromq.UnknownChannelError(what)
	case s.ReportLost:
		return s, unboundedError(what+", with lost connections reported", "libzmq does not say which connection ended")
	}
	ctx, cancel := context.WithTimeout(context.Background(), r.config.ConnectTimeout)
	defer cancel()
	host, err := zeromq.ResolveBindHost(ctx, t.names, s.Addr.Host, r.config.IPv6)
	if err != nil {
		return s, zeromq.BindError(what, err)
	}
	at, err := netip.ParseAddr(host)
	endpoint := "tcp://*:"
	if err == nil && at.Is6() {
		endpoint = "tcp://[" + host + "]:"
	} else if err == nil {
		endpoint = "tcp://" + host + ":"
	}
	if s.Addr.Port == 0 {
		endpoint += "*"
	} else {
		endpoint += strconv.Itoa(int(s.Addr.Port))
	}
	kind := zmq4.PULL
	if s.Channel.HasReplies() {
		kind = zmq4.ROUTER
	}
	socket, err := r.newSocket(kind, r.config.IPv6 || at.Is6())
	if err != nil {
		return s, zeromq.OutOfSocketsError(what, err)
	}
	r.listening = append(r.listening, socket)
	if err := socket.Bind(endpoint); err != nil {
		return s, zeromq.BindError(what, systemError(err))
	}
	if err := r.watchSocket(socket, &server{socket: socket, reactor: r, channel: s.Channel, index: index}); err != nil {
		return s, zeromq.OutOfSocketsError(what, err)
	}
	bound, err := socket.GetLastEndpoint()
	if err != nil {
		return s, zeromq.OutOfSocketsError(what, err)
	}
	port, err := strconv.ParseUint(bound[strings.LastIndexByte(bound, ':')+1:], 10, 16)
	if err != nil {
		panic(fmt.Sprintf("BUG: libzmq bound %q, which has no port", bound))
	}
	s.Addr.Port = uint16(port)
	return s, nil
}

// systemError returns an error of libzmq as the system's error, if the error has a system number.
func systemError(err error) error {
	var e zmq4.Errno
	if errors.As(err, &e) && e < zmq4.Errno(firstOwnErrno) {
		return fmt.Errorf("bind: %w", syscall.Errno(e))
	}
	return err
}

// firstOwnErrno is the lowest of the error numbers that libzmq defines in addition to the system's.
const firstOwnErrno = 156384712
