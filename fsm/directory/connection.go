package directory

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
)

// A connection is one on which workers were heard and which is open, as far as is known.
type connection struct {
	id   uint64
	ties table.List
}

// A tie is a worker on a connection.
type tie struct {
	worker, conn table.Handle
}

// A parting is a worker without a connection.
type parting struct {
	worker table.Handle
	at     effects.Time // its last connection ended, or something was heard of it on none
}

// tiesOf is how many connections of a worker are known, the latest ones: it asks on one, tells on another and sends
// heartbeats on a third, and one of them may have been replaced.
const tiesOf = 4

// connections are those of workers that are heard here.
type connections struct {
	most     int `snap:"share"` // workers of one
	rows     table.Slab[connection]
	byID     table.Index
	ties     table.Slab[tie]
	partings table.Slab[parting]
	apart    table.List // of them, the oldest first
}

func newConnections(c *Config) connections {
	return connections{
		most: c.OfSource, rows: table.NewSlab[connection](tiesOf * c.Workers), ties: table.NewSlab[tie](tiesOf * c.Workers),
		partings: table.NewSlab[parting](c.Workers),
	}
}

func (c *connections) find(id uint64) table.Handle {
	for p := c.byID.Seek(id); p.Found(); p = c.byID.Next(p) {
		if c.rows.Get(p.Handle()).id == id {
			return p.Handle()
		}
	}
	return 0
}

// full says whether a connection has as many workers as it may.
func (c *connections) full(id uint64) bool {
	x := c.rows.Get(c.find(id))
	return x != nil && x.ties.Len() >= c.most
}

// hear notes that a worker was heard on a connection; 0: on none.
func (c *connections) hear(now effects.Time, h table.Handle, w *worker, id uint64) {
	if id != 0 && !c.tied(w, id) && !c.full(id) {
		c.tie(h, w, id)
	}
	switch {
	case w.connected():
		c.joined(w)
	case w.parting != 0:
		c.partings.Unlink(&c.apart, w.parting)
		c.partings.Get(w.parting).at = now
		c.partings.PushBack(&c.apart, w.parting)
	default:
		c.part(now, h, w)
	}
}

// tied says whether a worker is on that connection already.
func (c *connections) tied(w *worker, id uint64) bool {
	for _, t := range w.ties {
		if t != 0 && c.rows.Get(c.ties.Get(t).conn).id == id {
			return true
		}
	}
	return false
}

// tie puts a worker on a connection, in the place of the one that it was put on longest ago.
func (c *connections) tie(h table.Handle, w *worker, id uint64) {
	c.untie(w.ties[tiesOf-1])
	copy(w.ties[1:], w.ties[:])
	conn := c.find(id)
	if conn == 0 {
		var x *connection
		conn, x = c.rows.Add()
		*x = connection{id: id}
		c.byID.Add(id, conn)
	}
	t, x := c.ties.Add()
	*x = tie{worker: h, conn: conn}
	c.ties.PushBack(&c.rows.Get(conn).ties, t)
	w.ties[0] = t
}

// untie takes a worker off a connection, which is forgotten with its last one.
func (c *connections) untie(t table.Handle) {
	if t == 0 {
		return
	}
	conn := c.ties.Get(t).conn
	x := c.rows.Get(conn)
	c.ties.Unlink(&x.ties, t)
	c.ties.Remove(t)
	if x.ties.Len() == 0 {
		c.byID.Remove(x.id, conn)
		c.rows.Remove(conn)
	}
}

// part notes that a worker has no connection any more.
func (c *connections) part(now effects.Time, h table.Handle, w *worker) {
	p, x := c.partings.Add()
	*x = parting{worker: h, at: now}
	c.partings.PushBack(&c.apart, p)
	w.parting = p
}

// joined ends a parting, if there is one.
func (c *connections) joined(w *worker) {
	if w.parting != 0 {
		c.partings.Unlink(&c.apart, w.parting)
		c.partings.Remove(w.parting)
		w.parting = 0
	}
}

// forget takes a worker off all connections, and nobody waits for it to have one.
func (c *connections) forget(w *worker) {
	for i, t := range w.ties {
		c.untie(t)
		w.ties[i] = 0
	}
	c.joined(w)
}

// parted is the worker that has had no connection for longest, and since when; ok is false if each has one.
func (c *connections) parted() (h table.Handle, at effects.Time, ok bool) {
	if h = c.apart.Front(); h == 0 {
		return 0, 0, false
	}
	x := c.partings.Get(h)
	return x.worker, x.at, true
}

// ConnectionLost says that a connection has ended: at most [Config.OfSource] workers were heard on it. Workers without
// another one are forgotten after [Config.Parted], and leave before that where there is no room for others.
func (d *Directory) ConnectionLost(now effects.Time, id uint64) {
	c := &d.known.conns
	conn := c.find(id)
	for left := conn != 0; left; {
		x := c.rows.Get(conn)
		t := x.ties.Front()
		left = x.ties.Len() > 1 // The connection is forgotten with the last one.
		h := c.ties.Get(t).worker
		w := d.known.workers.Get(h)
		for i := range w.ties {
			if w.ties[i] == t {
				copy(w.ties[i:], w.ties[i+1:])
				w.ties[tiesOf-1] = 0
				break
			}
		}
		if c.untie(t); !w.connected() {
			c.part(now, h, w)
		}
	}
}
