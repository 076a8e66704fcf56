package kernel

import (
	"fmt"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
)

// Conns say whose each connection of ours is, from when it has opened until it is closed. Who has a connection knows it
// by its number, so all of this follows from what owners keep, and nothing of it counts beside that.
type Conns struct {
	rows table.Slab[bound] `snap:"skip"`
	byID table.Index       `snap:"skip"`
}

type bound struct {
	conn effects.Conn
	ref  Ref
}

// NewConns returns a table for at most max open connections.
func NewConns(max int) Conns { return new(Conns).Emptied(max) }

// Emptied returns what NewConns does, in the memory of t, which is not used any more.
func (t *Conns) Emptied(max int) Conns {
	return Conns{rows: t.rows.Emptied(max), byID: t.byID.Emptied()}
}

// Len is the number of connections that are open.
func (t *Conns) Len() int { return t.rows.Len() }

// But is the number of those that are of none of some owners; to look at only.
func (t *Conns) But(owners ...Owner) (n int) {
	for slot := range t.rows.Slots() {
		if x := t.rows.Get(t.rows.At(slot)); x != nil && !slices.Contains(owners, x.ref.Owner) {
			n++
		}
	}
	return n
}

// Bind notes whose a connection is. It has just opened, so nobody had it before.
func (t *Conns) Bind(conn effects.Conn, ref Ref) {
	if t.find(conn) != 0 {
		panic(fmt.Sprintf("BUG: connection %d opened twice", conn))
	}
	h, x := t.rows.Add()
	if x == nil {
		panic("BUG: more open connections than the tables they belong to allow")
	}
	*x = bound{conn: conn, ref: ref}
	t.byID.Add(uint64(conn), h)
}

// Find says whose a connection is: nobody's (the zero Ref) if it is closed, or of an owner who keeps no account here.
func (t *Conns) Find(conn effects.Conn) Ref {
	if x := t.rows.Get(t.find(conn)); x != nil {
		return x.ref
	}
	return Ref{}
}

// Unbind notes that a connection is closed. It happens once, as its Close does.
func (t *Conns) Unbind(conn effects.Conn) {
	h := t.find(conn)
	if h == 0 {
		panic(fmt.Sprintf("BUG: connection %d was closed twice, or by who has it not", conn))
	}
	t.byID.Remove(uint64(conn), h)
	t.rows.Remove(h)
}

func (t *Conns) find(conn effects.Conn) table.Handle {
	for p := t.byID.Seek(uint64(conn)); p.Found(); p = t.byID.Next(p) {
		if t.rows.Get(p.Handle()).conn == conn {
			return p.Handle()
		}
	}
	return 0
}
