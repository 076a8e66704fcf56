package allocqueue

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/table"
)

// A requester with a lost connection cannot receive the reply. This file finds all waiting requests of a connection
// and condemns them together. The loss of a connection therefore visits no row; a sweep removes the rows later, a few
// in each step.

// A caller is a connection on which waiting requests arrived.
type caller struct {
	conn  effects.Conn
	first table.Handle // the newest of the connection's rows; the rows are linked among each other
	gone  bool         // the connection is lost
}

// callers is the table of all connections that have waiting requests.
type callers struct {
	slab   table.Slab[caller]
	byConn table.Index // connections that are not lost
	gone   table.List  // lost connections, the longest lost first
}

func (c *callers) emptied(most int) callers {
	return callers{slab: c.slab.Emptied(most), byConn: c.byConn.Emptied()}
}

// of returns the caller of a connection, and inserts a caller if there is none.
func (c *callers) of(conn effects.Conn) table.Handle {
	h := c.find(conn)
	if h == 0 {
		var x *caller
		h, x = c.slab.Add()
		*x = caller{conn: conn}
		c.byConn.Add(uint64(conn), h)
	}
	return h
}

// find returns the caller of a connection that is not lost, or zero.
func (c *callers) find(conn effects.Conn) table.Handle {
	for p := c.byConn.Seek(uint64(conn)); p.Found(); p = c.byConn.Next(p) {
		if c.slab.Get(p.Handle()).conn == conn {
			return p.Handle()
		}
	}
	return 0
}

// leave removes a caller that has no rows any more.
func (c *callers) leave(h table.Handle) {
	x := c.slab.Get(h)
	switch {
	case x.first != 0:
		return
	case x.gone:
		c.slab.Unlink(&c.gone, h)
	default:
		c.byConn.Remove(uint64(x.conn), h)
	}
	c.slab.Remove(h)
}

// A call is the connection on which a request arrived, and the row's position in the list of its caller.
type call struct {
	Conn              effects.Conn
	of, before, after table.Handle
}

// join adds a row to the caller of a connection.
func (c *callers) join(rows *table.Slab[Row], h table.Handle, conn effects.Conn) {
	of := c.of(conn)
	x := c.slab.Get(of)
	rows.Get(h).call = call{Conn: conn, of: of, after: x.first}
	if x.first != 0 {
		rows.Get(x.first).before = h
	}
	x.first = h
}

// part removes a row from its caller.
func (c *callers) part(rows *table.Slab[Row], h table.Handle) {
	q := &rows.Get(h).call
	if q.after != 0 {
		rows.Get(q.after).before = q.before
	}
	if q.before != 0 {
		rows.Get(q.before).after = q.after
	} else {
		c.slab.Get(q.of).first = q.after
	}
	c.leave(q.of)
	*q = call{}
}

// HangUp condemns the requests of a connection that is lost. HangUp reports whether there are any.
func (p *Pending) HangUp(conn effects.Conn) bool {
	h := p.callers.find(conn)
	if h == 0 {
		return false
	}
	p.callers.byConn.Remove(uint64(conn), h)
	p.callers.slab.Get(h).gone = true
	p.callers.slab.PushBack(&p.callers.gone, h)
	return true
}

// HungUp reports whether the connection of a request is lost, so that nobody can receive the reply.
func (p *Pending) HungUp(q *Row) bool { return p.callers.slab.Get(q.of).gone }

// RemoveHungUp removes a request that arrived on a lost connection. RemoveHungUp reports whether there was a request.
func (p *Pending) RemoveHungUp(v *env.Env) bool {
	x := p.callers.slab.Get(p.callers.gone.Front())
	if x == nil {
		return false
	}
	v.Out.Mark(Marks.RequesterLost)
	v.Work.Spend(1)
	p.Remove(v, x.first)
	return true
}
