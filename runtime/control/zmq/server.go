//go:build cgo && linux

package zmq

import (
	"fmt"
	"syscall"

	zmq4 "github.com/pebbe/zmq4"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/control"
)

// router serves a channel whose clients ask and are answered. A message from a REQ client has three
// frames here: the client's name, which the ROUTER put there, the empty one, the body.
type router struct {
	*socket
	reactor *reactor
	channel effects.Channel
	index   int // among the servers
}

func (s *router) receive() (more bool) {
	var parts [3][]byte
	for range budget {
		n, ok := s.frames(parts[:])
		if !ok {
			return false
		}
		if n != 3 || len(parts[1]) != 0 {
			s.reactor.stats.malformed.Add(1)
			continue
		}
		s.reactor.received(s, parts[0], parts[2])
	}
	return true
}

// puller serves a channel of one-way messages of one frame. PULL does not say who sent one.
type puller struct {
	*socket
	reactor *reactor
	channel effects.Channel
}

func (s *puller) receive() (more bool) {
	var parts [1][]byte
	for range budget {
		n, ok := s.frames(parts[:])
		if !ok {
			return false
		}
		if n != 1 {
			s.reactor.stats.malformed.Add(1)
			continue
		}
		s.reactor.sink.Post(&effects.Received{
			Conn: s.reactor.drawConn(), Channel: s.channel, Body: parts[0],
		})
	}
	return true
}

// received tells of one request.
func (r *reactor) received(from *router, client, body []byte) {
	request, evicted := r.requests.add(route{server: from.index, client: client})
	if evicted {
		r.stats.requestsEvicted.Add(1)
	}
	r.sink.Post(&effects.Received{
		Conn:    r.clients.conn(from.index, client, r.drawConn),
		Channel: from.channel,
		Request: request,
		Body:    body,
	})
}

// reply answers one request, if its asker can still be reached.
func (r *reactor) reply(request effects.Request, body []byte) {
	way, found := r.requests.take(request)
	if !found {
		r.stats.repliesDropped.Add(1)
		return
	}
	// The ROUTER refuses the first frame if the client is gone or does not read.
	server := r.listening[way.server]
	if err := server.send(way.client, nil, body); err != nil {
		r.stats.repliesDropped.Add(1)
	}
	r.touch(server)
}

// serve binds one server and returns it with the port that it got.
func (r *reactor) serve(index int, server control.Server) (control.Server, error) {
	what := fmt.Sprintf("serve channel %s at host %q port %d", server.Channel, server.Addr.Host, server.Addr.Port)
	if _, ok := bindEndpoint(server.Addr); !ok {
		return server, &control.Error{Code: effects.Invalid, What: what,
			Remedy: "give an IP address or a name of this node, the name of a network interface, or no host for every interface"}
	}
	// What peers are told stays the name.
	at, err := bindable(server.Addr, r.config.IPv6, r.config.ConnectTimeout)
	if err != nil {
		return server, bindError(what, err)
	}
	endpoint, ok := bindEndpoint(at)
	if !ok {
		return server, bindError(what, fmt.Errorf("the name stands for %q", at.Host))
	}
	var kind zmq4.Type
	switch server.Channel {
	case effects.ChannelInit, effects.ChannelAlloc:
		kind = zmq4.ROUTER
	case effects.ChannelProxy, effects.ChannelDone:
		kind = zmq4.PULL
	default:
		return server, &control.Error{Code: effects.Invalid, What: what, Remedy: "serve init, alloc, proxy or done"}
	}
	s, err := r.newSocket(kind, r.config.IPv6 || isIPv6(at.Host))
	if err != nil {
		return server, outOfSockets(what, err)
	}
	r.listening = append(r.listening, s)

	var owner receiver = &puller{socket: s, reactor: r, channel: server.Channel}
	if kind == zmq4.ROUTER {
		// Else a reply whose asker is gone would vanish uncounted.
		if err := s.SetRouterMandatory(1); err != nil {
			return server, outOfSockets(what, err)
		}
		owner = &router{socket: s, reactor: r, channel: server.Channel, index: index}
	}
	if err := s.Bind(endpoint); err != nil {
		return server, bindError(what, err)
	}
	if err := r.watch(s, owner); err != nil {
		return server, outOfSockets(what, err)
	}
	bound, err := s.GetLastEndpoint()
	if err != nil {
		return server, outOfSockets(what, err)
	}
	port, ok := boundPort(bound)
	if !ok {
		panic(fmt.Sprintf("BUG: zeromq bound %q, which has no port", bound))
	}
	server.Addr.Port = port
	return server, nil
}

func outOfSockets(what string, err error) error {
	return &control.Error{Code: effects.TooMany, What: what, Cause: err,
		Remedy: "raise the limit of open files, or lower MaxConns"}
}

func bindError(what string, err error) error {
	remedy := "give an IP address or a name of this node, the name of a network interface, or no host for every interface"
	switch {
	case isErrno(err, syscall.EADDRINUSE):
		remedy = "choose another port, or end the process that holds this one"
	case isErrno(err, syscall.EACCES):
		remedy = "choose a port above 1023"
	}
	return &control.Error{Code: effects.Refused, What: what, Cause: err, Remedy: remedy}
}
