package directory

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
)

// A connection is an open connection on which a worker was heard.
type connection struct {
	id      uint64
	workers table.List
}

// A workerConn records that a worker was heard on a connection.
type workerConn struct {
	worker, conn table.Handle
}

// A disconnection records a worker that has no open connection.
type disconnection struct {
	worker table.Handle
	// since is the time at which the last connection ended, or the worker was last heard without a connection.
	since effects.Time
}

// connsPerWorker is the number of connections that are recorded for a worker; the latest connections are kept. A worker
// sends requests on one connection, reports on a second and heartbeats on a third, and one of the three may have been
// replaced.
const connsPerWorker = 4

// connections is the table of connections of the workers that report to this directory.
type connections struct {
	workersPerConn    int `snap:"share"` // limit of workers on a connection
	rows              table.Slab[connection]
	byID              table.Index
	workerConns       table.Slab[workerConn]
	disconnections    table.Slab[disconnection]
	disconnectedOrder table.List // partings, oldest first
}

func newConnections(c *Config) connections {
	return connections{
		workersPerConn: c.WorkersPerConnection, rows: table.NewSlab[connection](connsPerWorker * c.Workers),
		workerConns:    table.NewSlab[workerConn](connsPerWorker * c.Workers),
		disconnections: table.NewSlab[disconnection](c.Workers),
	}
}

func (c *connections) findConn(id uint64) table.Handle {
	for p := c.byID.Find(id); p.Found(); p = c.byID.Next(p) {
		if c.rows.Get(p.Handle()).id == id {
			return p.Handle()
		}
	}
	return 0
}

// isFull reports whether a connection has reached the limit of workers.
func (c *connections) isFull(id uint64) bool {
	x := c.rows.Get(c.findConn(id))
	return x != nil && x.workers.Len() >= c.workersPerConn
}

// recordHeard records that a worker was heard on the connection id, or on no connection if id is 0.
func (c *connections) recordHeard(now effects.Time, h table.Handle, w *worker, id uint64) {
	if id != 0 && !c.hasConn(w, id) && !c.isFull(id) {
		c.linkWorker(h, w, id)
	}
	switch {
	case w.isConnected():
		c.clearDisconnect(w)
	case w.disconnection != 0:
		c.disconnections.Unlink(&c.disconnectedOrder, w.disconnection)
		c.disconnections.Get(w.disconnection).since = now
		c.disconnections.PushBack(&c.disconnectedOrder, w.disconnection)
	default:
		c.recordDisconnect(now, h, w)
	}
}

// hasConn reports whether a worker is already recorded on the connection id.
func (c *connections) hasConn(w *worker, id uint64) bool {
	for _, t := range w.conns {
		if t != 0 && c.rows.Get(c.workerConns.Get(t).conn).id == id {
			return true
		}
	}
	return false
}

// linkWorker records a worker on the connection id. The oldest of the worker's recorded connections is dropped if there
// is no free slot.
func (c *connections) linkWorker(h table.Handle, w *worker, id uint64) {
	c.unlinkWorker(w.conns[connsPerWorker-1])
	copy(w.conns[1:], w.conns[:])
	conn := c.findConn(id)
	if conn == 0 {
		var x *connection
		conn, x = c.rows.Add()
		*x = connection{id: id}
		c.byID.Add(id, conn)
	}
	t, x := c.workerConns.Add()
	*x = workerConn{worker: h, conn: conn}
	c.workerConns.PushBack(&c.rows.Get(conn).workers, t)
	w.conns[0] = t
}

// unlinkWorker removes a worker from a connection. The connection is removed with the last worker.
func (c *connections) unlinkWorker(t table.Handle) {
	if t == 0 {
		return
	}
	conn := c.workerConns.Get(t).conn
	x := c.rows.Get(conn)
	c.workerConns.Unlink(&x.workers, t)
	c.workerConns.Remove(t)
	if x.workers.Len() == 0 {
		c.byID.Remove(x.id, conn)
		c.rows.Remove(conn)
	}
}

// recordDisconnect records that a worker has no connection any more.
func (c *connections) recordDisconnect(now effects.Time, h table.Handle, w *worker) {
	p, x := c.disconnections.Add()
	*x = disconnection{worker: h, since: now}
	c.disconnections.PushBack(&c.disconnectedOrder, p)
	w.disconnection = p
}

// clearDisconnect removes the parting of a worker, if any.
func (c *connections) clearDisconnect(w *worker) {
	if w.disconnection != 0 {
		c.disconnections.Unlink(&c.disconnectedOrder, w.disconnection)
		c.disconnections.Remove(w.disconnection)
		w.disconnection = 0
	}
}

// removeWorker removes a worker from all connections, and removes the worker's parting.
func (c *connections) removeWorker(w *worker) {
	for i, t := range w.conns {
		c.unlinkWorker(t)
		w.conns[i] = 0
	}
	c.clearDisconnect(w)
}

// longestDisconnected returns the worker that has been without a connection for the longest time, and since when; ok is
// false if every worker has a connection.
func (c *connections) longestDisconnected() (h table.Handle, at effects.Time, ok bool) {
	if h = c.disconnectedOrder.Front(); h == 0 {
		return 0, 0, false
	}
	x := c.disconnections.Get(h)
	return x.worker, x.since, true
}

// ConnectionLost records that a connection has ended, on which at most [Config.WorkersPerConnection] workers were
// heard. A worker without another connection is dropped after [Config.Disconnected], or earlier if a connected worker
// needs the room.
func (d *Directory) ConnectionLost(now effects.Time, id uint64) {
	c := &d.roster.conns
	conn := c.findConn(id)
	for more := conn != 0; more; {
		x := c.rows.Get(conn)
		t := x.workers.Front()
		more = x.workers.Len() > 1 // untie removes the connection with the last worker.
		h := c.workerConns.Get(t).worker
		w := d.roster.workers.Get(h)
		for i := range w.conns {
			if w.conns[i] == t {
				copy(w.conns[i:], w.conns[i+1:])
				w.conns[connsPerWorker-1] = 0
				break
			}
		}
		if c.unlinkWorker(t); !w.isConnected() {
			c.recordDisconnect(now, h, w)
		}
	}
}
