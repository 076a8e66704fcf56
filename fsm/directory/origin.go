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
	seed          uint64 `snap:"share"`
	rows          table.Slab[origin]
	byID          table.Index
	workerShare   table.Share
	instanceShare table.Share
}

// maxOrigins returns the greatest possible number of origins: each has a worker or an instance.
func (c *Config) maxOrigins() int { return c.Workers + c.Instances }

func newOrigins(c *Config) origins {
	return origins{
		seed: c.Seed, rows: table.NewSlab[origin](c.maxOrigins()),
		workerShare:   new(table.Share).Recycle(c.Workers, c.maxOrigins()),
		instanceShare: new(table.Share).Recycle(c.Instances, c.maxOrigins()),
	}
}

func (o *origins) hashOf(id effects.Origin) uint64 {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(id))
	return table.Hash(o.seed, b[:])
}

// findOrigin returns the row of an origin, or 0 if nothing counts against it.
func (o *origins) findOrigin(id effects.Origin) table.Handle {
	for p := o.byID.Find(o.hashOf(id)); p.Found(); p = o.byID.Next(p) {
		if o.rows.Get(p.Handle()).id == id {
			return p.Handle()
		}
	}
	return 0
}

// classOf returns the class of an origin in shares, or -1 if nothing counts against the origin yet.
func (o *origins) classOf(id effects.Origin) int {
	if h := o.findOrigin(id); h != 0 {
		return int(h.Slot())
	}
	return -1
}

// addRef adds a reference to an origin and creates the row if necessary.
func (o *origins) addRef(id effects.Origin) table.Handle {
	h := o.findOrigin(id)
	if h == 0 {
		var x *origin
		h, x = o.rows.Add()
		*x = origin{id: id}
		o.byID.Add(o.hashOf(id), h)
	}
	o.rows.Get(h).refs++
	return h
}

// removeRef removes a reference. The row is removed with the last reference.
func (o *origins) removeRef(h table.Handle) {
	x := o.rows.Get(h)
	if x.refs--; x.refs == 0 {
		o.byID.Remove(o.hashOf(x.id), h)
		o.rows.Remove(h)
	}
}
