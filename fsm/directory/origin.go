package directory

import (
	"encoding/binary"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
)

// An origin is a network address that made workers known. The slot of the origin's row is the origin's class in every
// share of the directory: of workers, instances, full syncs, holders and chunks. No class gets more than it leaves
// free for others, so an address that invents names leaves to the next address as much as the address took.
type origin struct {
	id   effects.Origin
	refs int // workers and instances that count against this origin
}

type origins struct {
	seed      uint64 `snap:"share"`
	rows      table.Slab[origin]
	byID      table.Index
	workers   table.Share
	instances table.Share
}

// classes returns the greatest possible number of origins: each has a worker or an instance.
func (c *Config) classes() int { return c.Workers + c.Instances }

func newOrigins(c *Config) origins {
	return origins{
		seed: c.Seed, rows: table.NewSlab[origin](c.classes()),
		workers:   new(table.Share).Emptied(c.Workers, c.classes()),
		instances: new(table.Share).Emptied(c.Instances, c.classes()),
	}
}

func (o *origins) hash(id effects.Origin) uint64 {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(id))
	return table.Hash(o.seed, b[:])
}

// find returns the row of an origin, or 0 if nothing counts against it.
func (o *origins) find(id effects.Origin) table.Handle {
	for p := o.byID.Seek(o.hash(id)); p.Found(); p = o.byID.Next(p) {
		if o.rows.Get(p.Handle()).id == id {
			return p.Handle()
		}
	}
	return 0
}

// class returns the class of an origin in shares, or -1 if nothing counts against the origin yet.
func (o *origins) class(id effects.Origin) int {
	if h := o.find(id); h != 0 {
		return int(h.Slot())
	}
	return -1
}

// join adds a reference to an origin and creates the row if necessary.
func (o *origins) join(id effects.Origin) table.Handle {
	h := o.find(id)
	if h == 0 {
		var x *origin
		h, x = o.rows.Add()
		*x = origin{id: id}
		o.byID.Add(o.hash(id), h)
	}
	o.rows.Get(h).refs++
	return h
}

// leave removes a reference. The row is removed with the last reference.
func (o *origins) leave(h table.Handle) {
	x := o.rows.Get(h)
	if x.refs--; x.refs == 0 {
		o.byID.Remove(o.hash(x.id), h)
		o.rows.Remove(h)
	}
}
