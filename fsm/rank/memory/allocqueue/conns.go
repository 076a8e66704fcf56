package allocqueue

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/table"
)

// A requester with a lost connection cannot receive the reply. This file finds all waiting requests of a connection
// and condemns them together. The loss of a connection therefore visits no row; a sweep removes the rows later, a few
// in each step.

// A connRow is a connection on which waiting requests arrived.
type connRow struct {
	conn   effects.Conn
	newest table.Handle // the newest of the connection's rows; the rows are linked among each other
	lost   bool         // the connection is lost
}

// connTable is the table of all connections that have waiting requests.
type connTable struct {
	rows      table.Slab[connRow]
	byConn    table.Index // connections that are not lost
	lostConns table.List  // lost connections, the longest lost first
}

func (c *connTable) recycle(limit int) connTable {
	return connTable{rows: c.rows.Recycle(limit), byConn: c.byConn.Recycle()}
}

// findOrAdd returns the caller of a connection, and inserts a caller if there is none.
func (c *connTable) findOrAdd(conn effects.Conn) table.Handle {
	h := c.findConn(conn)
	if h == 0 {
		var x *connRow
		h, x = c.rows.Add()
		*x = connRow{conn: conn}
		c.byConn.Add(uint64(conn), h)
	}
	return h
}

// findConn returns the caller of a connection that is not lost, or zero.
func (c *connTable) findConn(conn effects.Conn) table.Handle {
	for p := c.byConn.Find(uint64(conn)); p.Found(); p = c.byConn.Next(p) {
		if c.rows.Get(p.Handle()).conn == conn {
			return p.Handle()
		}
	}
	return 0
}

// removeIfEmpty removes a caller that has no rows any more.
func (c *connTable) removeIfEmpty(h table.Handle) {
	x := c.rows.Get(h)
	switch {
	case x.newest != 0:
		return
	case x.lost:
		c.rows.Unlink(&c.lostConns, h)
	default:
		c.byConn.Remove(uint64(x.conn), h)
	}
	c.rows.Remove(h)
}

// A connLink is the connection on which a request arrived, and the row's position in the list of its caller.
type connLink struct {
	Conn                      effects.Conn
	connHandle, before, after table.Handle
}

// addRow adds a row to the caller of a connection.
func (c *connTable) addRow(rows *table.Slab[Row], h table.Handle, conn effects.Conn) {
	connHandle := c.findOrAdd(conn)
	x := c.rows.Get(connHandle)
	rows.Get(h).connLink = connLink{Conn: conn, connHandle: connHandle, after: x.newest}
	if x.newest != 0 {
		rows.Get(x.newest).before = h
	}
	x.newest = h
}

// removeRow removes a row from its caller.
func (c *connTable) removeRow(rows *table.Slab[Row], h table.Handle) {
	q := &rows.Get(h).connLink
	if q.after != 0 {
		rows.Get(q.after).before = q.before
	}
	if q.before != 0 {
		rows.Get(q.before).after = q.after
	} else {
		c.rows.Get(q.connHandle).newest = q.after
	}
	c.removeIfEmpty(q.connHandle)
	*q = connLink{}
}

// CondemnConn condemns the requests of a connection that is lost. CondemnConn reports whether there are any.
func (p *Queue) CondemnConn(conn effects.Conn) bool {
	h := p.conns.findConn(conn)
	if h == 0 {
		return false
	}
	p.conns.byConn.Remove(uint64(conn), h)
	p.conns.rows.Get(h).lost = true
	p.conns.rows.PushBack(&p.conns.lostConns, h)
	return true
}

// IsConnLost reports whether the connection of a request is lost, so that nobody can receive the reply.
func (p *Queue) IsConnLost(q *Row) bool { return p.conns.rows.Get(q.connHandle).lost }

// RemoveConnLost removes a request that arrived on a lost connection. RemoveConnLost reports whether there was a
// request.
func (p *Queue) RemoveConnLost(v *env.Env) bool {
	x := p.conns.rows.Get(p.conns.lostConns.Front())
	if x == nil {
		return false
	}
	v.Out.Mark(Marks.RequesterLost)
	v.Work.SpendRows(1)
	p.Remove(v, x.newest)
	return true
}
