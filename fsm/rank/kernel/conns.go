package kernel

import (
	"fmt"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
)

// Conns says which row owns each connection that the rank opened itself, from the step in which the connection opened
// until the step in which its owner closes it. A connection that was lost stays in the table until then. Connections of
// peers to this rank, and the connection to the proxy, are not in the table. Each owner also stores the number of the
// connection, so the table follows from the tables of the owners: snapshots clone it, and do not hash it.
type Conns struct {
	rows table.Slab[connRow] `snap:"skip"`
	byID table.Index         `snap:"skip"`
}

// connRow is an open connection and the row that owns it.
type connRow struct {
	conn effects.Conn
	ref  Ref
}

// NewConns returns a table for at most max open connections.
func NewConns(max int) Conns { return new(Conns).Recycle(max) }

// Recycle is NewConns in the memory of t. The caller must not use t afterwards.
func (t *Conns) Recycle(max int) Conns {
	return Conns{rows: t.rows.Recycle(max), byID: t.byID.Recycle()}
}

// Len returns the number of open connections in the table.
func (t *Conns) Len() int { return t.rows.Len() }

// CountExcept returns the number of connections that belong to none of the given owners, for owners that count
// their own connections (Rank.CountConns). It is for inspection only.
func (t *Conns) CountExcept(owners ...Owner) (n int) {
	for slot := range t.rows.Slots() {
		if x := t.rows.Get(t.rows.At(slot)); x != nil && !slices.Contains(owners, x.ref.Owner) {
			n++
		}
	}
	return n
}

// Bind records that a connection, which has just opened, belongs to ref. Bind panics if the connection is already in
// the table, or if the table is full.
func (t *Conns) Bind(conn effects.Conn, ref Ref) {
	if t.findHandle(conn) != 0 {
		panic(fmt.Sprintf("BUG: connection %d opened twice", conn))
	}
	h, x := t.rows.Add()
	if x == nil {
		panic(fmt.Sprintf("BUG: the connection table is full (max %d)", t.rows.Max()))
	}
	*x = connRow{conn: conn, ref: ref}
	t.byID.Add(uint64(conn), h)
}

// Find returns the row that owns a connection. Find returns the zero Ref for a connection that its owner has closed, a
// connection that a peer opened, and the connection to the proxy.
func (t *Conns) Find(conn effects.Conn) Ref {
	if x := t.rows.Get(t.findHandle(conn)); x != nil {
		return x.ref
	}
	return Ref{}
}

// Unbind removes a connection that is closed. Unbind panics if the connection is not in the table: a connection is
// closed once, and by the owner.
func (t *Conns) Unbind(conn effects.Conn) {
	h := t.findHandle(conn)
	if h == 0 {
		panic(fmt.Sprintf("BUG: connection %d is closed but not in the table: closed twice, or not by its owner", conn))
	}
	t.byID.Remove(uint64(conn), h)
	t.rows.Remove(h)
}

func (t *Conns) findHandle(conn effects.Conn) table.Handle {
	for p := t.byID.Find(uint64(conn)); p.Found(); p = t.byID.Next(p) {
		if t.rows.Get(p.Handle()).conn == conn {
			return p.Handle()
		}
	}
	return 0
}
