package link

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
)

// Conn is a connection that this node opened to send requests. The window limits the requests in flight. With a window
// above 1 the replies may arrive in any order. The zero value is no connection.
//
// A Conn is a part of its owner. The owner opens a correlation (Corr) for each request, passes on only the completions
// of the present attempt, and closes connections that a former attempt opened. Each connection that was opened is
// closed exactly once, even after a loss. Until then env's Conns record the owner.
type Conn struct {
	id        effects.Conn
	opening   bool         // the connection is being opened
	window    uint16       // limit of requests in flight; 0 means 1
	inFlight  uint16       // requests without a reply
	lastReply effects.Time // when the newest reply arrived while more replies were outstanding; otherwise zero
}

// ID returns the connection, or zero if there is none.
func (c *Conn) ID() effects.Conn { return c.id }

// CanSend reports whether a request can be sent now.
func (c *Conn) CanSend() bool { return c.id != 0 && c.inFlight < max(c.window, 1) }

// OpenSingle opens the connection for one request at a time. The completion (Opened) will name corr. If server is not
// zero, only a server with that identity gets what is sent.
func (c *Conn) OpenSingle(v *env.Env, corr effects.Corr, channel effects.Channel, addr effects.Addr, server effects.Principal) {
	c.OpenWindow(v, corr, channel, 0, addr, server)
}

// OpenWindow opens the connection for up to window requests in flight.
func (c *Conn) OpenWindow(
	v *env.Env, corr effects.Corr, channel effects.Channel, window uint16, addr effects.Addr, server effects.Principal,
) {
	c.opening, c.window = true, window
	v.Out.Open(effects.Open{Corr: corr, Channel: channel, Window: window, Addr: addr, Principal: server})
}

// OnOpened handles the completion of Open or OpenWindow. The owner will receive the loss of the connection.
func (c *Conn) OnOpened(v *env.Env, ev *effects.Opened, owner kernel.Ref) {
	c.opening = false
	if ev.Code == effects.OK {
		c.id = ev.Conn
		v.Conns.Bind(c.id, owner)
	}
}

// Send sends a request. The reply will name corr.
func (c *Conn) Send(v *env.Env, corr effects.Corr, body []byte) {
	c.inFlight++
	v.Out.Send(effects.Send{Corr: corr, Conn: c.id, Body: body})
}

// InFlight returns the number of requests without a reply.
func (c *Conn) InFlight() int { return int(c.inFlight) }

// LastReply returns when the last reply arrived on the connection id while more replies were outstanding. LastReply
// returns zero if none are outstanding or if id is not this connection.
func (c *Conn) LastReply(id effects.Conn) effects.Time {
	if c.id != id {
		return 0
	}
	return c.lastReply
}

// OnReplied records that a reply arrived, so that another request may be sent. OnReplied panics if no request is in
// flight.
func (c *Conn) OnReplied(now effects.Time) {
	if c.inFlight == 0 {
		panic("BUG: an answer on a connection without a question")
	}
	c.inFlight--
	if c.lastReply = 0; c.inFlight > 0 {
		c.lastReply = now
	}
}

// Close closes the connection if there is a connection, so that no late reply can arrive (rule M6). An attempt to open
// a connection that is still pending continues.
func (c *Conn) Close(v *env.Env) {
	if c.id != 0 {
		v.Out.Close(c.id)
		v.Conns.Unbind(c.id)
	}
	*c = Conn{opening: c.opening, window: c.window}
}
