package link

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
)

// Conn is a connection of ours that carries questions: one at a time, or as many as its window says, whose answers then
// come in any order. The zero value is none.
//
// It belongs to whoever has it as a part. The owner opens a Corr for each question, tells it of completions of its
// present attempt alone, and closes what a former one opened. Each connection that has opened is closed exactly once,
// also one that was lost; between the two env's Conns say whose it is.
type Conn struct {
	id       effects.Conn
	opening  bool
	window   uint16       // the most questions without an answer; 0 is 1
	inFlight uint16       // questions without an answer
	heard    effects.Time // when the newest answer came while others were to come; zero in lockstep
}

// ID is the connection, or zero.
func (c *Conn) ID() effects.Conn { return c.id }

// Ready says whether a question can be asked now.
func (c *Conn) Ready() bool { return c.id != 0 && c.inFlight < max(c.window, 1) }

// Open opens it in lockstep; corr is the one that Opened will name.
func (c *Conn) Open(v *env.Env, corr effects.Corr, channel effects.Channel, addr effects.Addr) {
	c.OpenMany(v, corr, channel, 0, addr)
}

// OpenMany opens it for so many questions at a time.
func (c *Conn) OpenMany(v *env.Env, corr effects.Corr, channel effects.Channel, window uint16, addr effects.Addr) {
	c.opening, c.window = true, window
	v.Out.Open(effects.Open{Corr: corr, Channel: channel, Window: window, Addr: addr})
}

// Opened notes how that ended; owner is told if the connection is lost.
func (c *Conn) Opened(v *env.Env, ev *effects.Opened, owner kernel.Ref) {
	c.opening = false
	if ev.Code == effects.OK {
		c.id = ev.Conn
		v.Conns.Bind(c.id, owner)
	}
}

// Send asks a question; corr is the one that the answer will name.
func (c *Conn) Send(v *env.Env, corr effects.Corr, body []byte) {
	c.inFlight++
	v.Out.Send(effects.Send{Corr: corr, Conn: c.id, Body: body})
}

// InFlight is the number of questions without an answer.
func (c *Conn) InFlight() int { return int(c.inFlight) }

// Heard is when an answer came last on the connection id, if that is this one and others are to come: zero if not.
func (c *Conn) Heard(id effects.Conn) effects.Time {
	if c.id != id {
		return 0
	}
	return c.heard
}

// Answered notes that an answer came: another question may be asked.
func (c *Conn) Answered(now effects.Time) {
	if c.inFlight == 0 {
		panic("BUG: an answer on a connection without a question")
	}
	c.inFlight--
	if c.heard = 0; c.inFlight > 0 {
		c.heard = now
	}
}

// Close closes it, if it is open: no late answer can arrive any more. One that is being opened goes on.
func (c *Conn) Close(v *env.Env) {
	if c.id != 0 {
		v.Out.Close(c.id)
		v.Conns.Unbind(c.id)
	}
	*c = Conn{opening: c.opening, window: c.window}
}
