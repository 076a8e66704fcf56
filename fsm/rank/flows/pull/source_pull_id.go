package pull

import (
	"encoding/binary"

	"github.com/kvferry/kvferry/fsm/prng"
	"github.com/kvferry/kvferry/fsm/rank/flows/put"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// A pullIDTable maps the pull ids, by which readers name offers, to puts. Each id is known only to the reader to which
// it was sent.
type pullIDTable struct {
	ids    prng.Source
	byPull table.Index
}

func (x *pullIDTable) recycle(seed uint64) pullIDTable {
	return pullIDTable{ids: prng.New(seed), byPull: x.byPull.Recycle()}
}

// newID gives a put its id. It draws the id as protocol.NewPullID does, but without an io.Reader, which would
// escape to the heap.
func (x *pullIDTable) newID(h table.Handle) (id protocol.PullID) {
	binary.LittleEndian.PutUint64(id[:8], x.ids.Next())
	binary.LittleEndian.PutUint64(id[8:], x.ids.Next())
	id[6], id[8] = id[6]&0x0F|0x40, id[8]&0x3F|0x80
	x.byPull.Add(hashPullID(id), h)
	return id
}

func (x *pullIDTable) findPut(puts *put.Table[putRow, *putRow], id protocol.PullID) table.Handle {
	for q := x.byPull.Find(hashPullID(id)); q.Found(); q = x.byPull.Next(q) {
		if puts.Get(q.Handle()).pullID == id {
			return q.Handle()
		}
	}
	return 0
}

func (x *pullIDTable) removeID(id protocol.PullID, h table.Handle) {
	x.byPull.Remove(hashPullID(id), h)
}

func hashPullID(id protocol.PullID) uint64 { return binary.LittleEndian.Uint64(id[:]) }
