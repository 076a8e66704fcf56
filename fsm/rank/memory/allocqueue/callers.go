package allocqueue

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/table"
)

// Who asks on a connection that is gone is not there to hear the answer. All that waits of one connection is found by
// it, and condemned with it: its end looks at no row. A sweep takes them out, one after the other.

// A caller is a connection on which somebody asked who waits.
type caller struct {
	conn  effects.Conn
	first table.Handle // of its rows, the one that came last; they are linked among each other
	gone  bool
}

// callers are as many as have rows.
type callers struct {
	slab   table.Slab[caller]
	byConn table.Index // those that are not gone
	gone   table.List  // those that are, the one that went first before others
}

func (c *callers) emptied(most int) callers {
	return callers{slab: c.slab.Emptied(most), byConn: c.byConn.Emptied()}
}

// of finds or makes the caller of a connection.
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

func (c *callers) find(conn effects.Conn) table.Handle {
	for p := c.byConn.Seek(uint64(conn)); p.Found(); p = c.byConn.Next(p) {
		if c.slab.Get(p.Handle()).conn == conn {
			return p.Handle()
		}
	}
	return 0
}

// leave forgets a caller without rows.
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

// A call is the connection on which a row is asked for, and where it stands among those of its caller.
type call struct {
	Conn              effects.Conn
	of, before, after table.Handle
}

// join notes on which connection a row is asked for.
func (c *callers) join(rows *table.Slab[Row], h table.Handle, conn effects.Conn) {
	of := c.of(conn)
	x := c.slab.Get(of)
	rows.Get(h).call = call{Conn: conn, of: of, after: x.first}
	if x.first != 0 {
		rows.Get(x.first).before = h
	}
	x.first = h
}

// part takes a row from its caller.
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

// HangUp condemns what was asked on a connection that is gone, and says whether there is any.
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

// HungUp says that nobody is there to hear what becomes of a request: it is condemned.
func (p *Pending) HungUp(q *Row) bool { return p.callers.slab.Get(q.of).gone }

// RemoveHungUp takes out one of those, and says whether there was any.
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
