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

// route is the way back to who asked: a ROUTER, by its position among the servers, the frame that names the client's
// connection to it, and what goes in front of the answer.
type route struct {
	server   int
	channel  effects.Channel
	envelope [][]byte
}

// server takes what peers send on one channel.
type server struct {
	*socket
	reactor *reactor
	channel effects.Channel
	index   int // among the servers
}

func (s *server) receive() (more bool) {
	frames := zeromq.MostOfMessage(s.channel)
	if s.channel.Asks() {
		frames++ // The client's name, which the ROUTER puts first.
	}
	for range budget {
		m, ok := s.next(frames, s.reactor.config.MaxMessage, true)
		if !ok {
			return false
		}
		if s.channel.Asks() {
			s.asked(m)
		} else {
			s.told(m)
		}
	}
	return true
}

// asked hands on a question, with what comes before its body as the way back. The body of one that is no question is
// empty: that is no message of ours, so whoever answers it says so, and the asker does not wait for ever.
func (s *server) asked(m message) {
	r := s.reactor
	client := m.frames[0]
	envelope, body, err := zeromq.Question(s.channel, m.frames[1:])
	if m.fault != nil {
		err = m.fault
	}
	if err != nil {
		body = nil
		s.complain(m.from, err)
	}
	way := route{server: s.index, channel: s.channel, envelope: append([][]byte{client}, envelope...)}
	request, _, evicted := r.requests.Add(way)
	if evicted {
		r.stats.requestsEvicted.Add(1)
	}
	s.post(&effects.Received{Conn: r.clients.conn(s.index, client, m.from, r.drawConn), Request: request, Body: body}, m)
}

// told hands on what needs no answer. Of several messages that come together those that fitted are whole.
func (s *server) told(m message) {
	several := s.channel.Framing() == effects.Several
	if m.fault != nil || len(m.frames) != 1 && !several {
		err := m.fault
		if err == nil {
			err = fmt.Errorf("a message of %d frames instead of 1", len(m.frames))
		}
		s.complain(m.from, err)
		if !several {
			return
		}
	}
	conn := s.reactor.drawConn()
	for _, body := range m.frames {
		s.post(&effects.Received{Conn: conn, Body: body}, m)
	}
}

func (s *server) post(ev *effects.Received, m message) {
	ev.Origin, ev.Channel = zeromq.OriginOf(door.HostOf(m.from)), s.channel
	s.reactor.sink.Post(ev)
}

func (s *server) complain(from netip.Addr, err error) {
	s.reactor.stats.malformed.Add(1)
	s.reactor.seldom.Warn("a message cannot be taken", from.String(), "channel", s.channel.String(), "err", err)
}

// reply answers one request, if its asker can still be reached.
func (r *reactor) reply(request effects.Request, body []byte) {
	way, found := r.requests.Take(request)
	if !found || !zeromq.IsBody(way.channel, body) {
		r.stats.repliesDropped.Add(1)
		return
	}
	r.message(way.envelope...)
	r.body(way.channel, body)
	// The ROUTER refuses the first frame if the client is gone or does not read.
	s := r.listening[way.server]
	if err := s.send(r.frames); err != nil {
		r.stats.repliesDropped.Add(1)
	}
	r.touch(s)
}

// serve binds one server and returns it with the port that it got. What peers are told stays the name.
func (r *reactor) serve(index int, s control.Server, t *transport) (control.Server, error) {
	what := zeromq.Serving(s)
	switch {
	case !zeromq.Serves(s.Channel):
		return s, zeromq.UnknownChannel(what)
	case s.TellLost:
		return s, unbounded(what+", told of lost connections", "libzmq does not say whose connection ended")
	}
	ctx, cancel := context.WithTimeout(context.Background(), r.config.ConnectTimeout)
	defer cancel()
	host, err := zeromq.Bindable(ctx, t.names, s.Addr.Host, r.config.IPv6)
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
	if s.Channel.Asks() {
		kind = zmq4.ROUTER
	}
	socket, err := r.newSocket(kind, r.config.IPv6 || at.Is6())
	if err != nil {
		return s, zeromq.OutOfSockets(what, err)
	}
	r.listening = append(r.listening, socket)
	if err := socket.Bind(endpoint); err != nil {
		return s, zeromq.BindError(what, systemError(err))
	}
	if err := r.watch(socket, &server{socket: socket, reactor: r, channel: s.Channel, index: index}); err != nil {
		return s, zeromq.OutOfSockets(what, err)
	}
	bound, err := socket.GetLastEndpoint()
	if err != nil {
		return s, zeromq.OutOfSockets(what, err)
	}
	port, err := strconv.ParseUint(bound[strings.LastIndexByte(bound, ':')+1:], 10, 16)
	if err != nil {
		panic(fmt.Sprintf("BUG: libzmq bound %q, which has no port", bound))
	}
	s.Addr.Port = uint16(port)
	return s, nil
}

// systemError is an error of libzmq's as the system's, where it is one.
func systemError(err error) error {
	var e zmq4.Errno
	if errors.As(err, &e) && e < zmq4.Errno(firstOwnErrno) {
		return fmt.Errorf("bind: %w", syscall.Errno(e))
	}
	return err
}

// firstOwnErrno is the least of the errors that libzmq has beside the system's.
const firstOwnErrno = 156384712
