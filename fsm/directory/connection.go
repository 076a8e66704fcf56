package directory

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
)

// A connection is an open connection on which a worker was heard.
type connection struct {
	id   uint64
	ties table.List
}

// A tie records that a worker was heard on a connection.
type tie struct {
	worker, conn table.Handle
}

// A parting records a worker that has no open connection.
type parting struct {
	worker table.Handle
	// at is the time at which the last connection ended, or the worker was last heard without a connection.
	at effects.Time
}

// tiesOf is the number of connections that are recorded for a worker; the latest connections are kept. A worker sends
// requests on one connection, reports on a second and heartbeats on a third, and one of the three may have been
// replaced.
const tiesOf = 4

// connections is the table of connections of the workers that report to this directory.
type connections struct {
	most     int `snap:"share"` // limit of workers on a connection
	rows     table.Slab[connection]
	byID     table.Index
	ties     table.Slab[tie]
	partings table.Slab[parting]
	apart    table.List // partings, oldest first
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

// full reports whether a connection has reached the limit of workers.
func (c *connections) full(id uint64) bool {
	x := c.rows.Get(c.find(id))
	return x != nil && x.ties.Len() >= c.most
}

// hear records that a worker was heard on the connection id, or on no connection if id is 0.
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

// tied reports whether a worker is already recorded on the connection id.
func (c *connections) tied(w *worker, id uint64) bool {
	for _, t := range w.ties {
		if t != 0 && c.rows.Get(c.ties.Get(t).conn).id == id {
			return true
		}
	}
	return false
}

// tie records a worker on the connection id. The oldest of the worker's recorded connections is dropped if there is
// no free slot.
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

// untie removes a worker from a connection. The connection is removed with the last worker.
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

// part records that a worker has no connection any more.
func (c *connections) part(now effects.Time, h table.Handle, w *worker) {
	p, x := c.partings.Add()
	*x = parting{worker: h, at: now}
	c.partings.PushBack(&c.apart, p)
	w.parting = p
}

// joined removes the parting of a worker, if any.
func (c *connections) joined(w *worker) {
	if w.parting != 0 {
		c.partings.Unlink(&c.apart, w.parting)
		c.partings.Remove(w.parting)
		w.parting = 0
	}
}

// forget removes a worker from all connections, and removes the worker's parting.
func (c *connections) forget(w *worker) {
	for i, t := range w.ties {
		c.untie(t)
		w.ties[i] = 0
	}
	c.joined(w)
}

// parted returns the worker that has been without a connection for the longest time, and since when; ok is false if
// every worker has a connection.
func (c *connections) parted() (h table.Handle, at effects.Time, ok bool) {
	if h = c.apart.Front(); h == 0 {
		return 0, 0, false
	}
	x := c.partings.Get(h)
	return x.worker, x.at, true
}

// ConnectionLost records that a connection has ended, on which at most [Config.OfSource] workers were heard. A worker
// without another connection is dropped after [Config.Parted], or earlier if a connected worker needs the room.
func (d *Directory) ConnectionLost(now effects.Time, id uint64) {
	c := &d.known.conns
	conn := c.find(id)
	for left := conn != 0; left; {
		x := c.rows.Get(conn)
		t := x.ties.Front()
		left = x.ties.Len() > 1 // untie removes the connection with the last worker.
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
