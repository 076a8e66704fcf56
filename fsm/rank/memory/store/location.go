package store

import (
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/table"
)

// Location is a handle on one location of a key.
type Location = table.Handle

// A location is where a sender has a key's chunk for us to read: an item of an offer. The offer
// is the caller's; here it is a name.
type location struct {
	entry Entry
	offer table.Handle
	item  uint32
}

// LocationsLeft is the number of locations that still fit.
func (s *Store) LocationsLeft() int { return s.locations.Max() - s.locations.Len() }

// Locations is the number of locations.
func (s *Store) Locations() int { return s.locations.Len() }

// Attach notes that an offer has the key's chunk. Room and LocationsLeft must hold.
func (s *Store) Attach(hash uint64, key []byte, offer table.Handle, item uint32) Location {
	h := s.need(hash, key)
	e := s.entries.Get(h)
	at, p := s.locations.Add()
	*p = location{entry: h, offer: offer, item: item}
	s.locations.PushBack(&e.locations, at)
	return at
}

// Detach ends what Attach noted. An entry that nothing else keeps goes.
func (s *Store) Detach(at Location, v *env.Env) {
	h := s.locations.Get(at).entry
	s.locations.Unlink(&s.entries.Get(h).locations, at)
	s.locations.Remove(at)
	s.Settle(h, v)
}

// HashAt is the hash of the key that has the location.
func (s *Store) HashAt(at Location) uint64 { return s.entries.Get(s.locations.Get(at).entry).hash }

// Expected says whether a fill of the entry is under way, or a sender's offer of it is kept.
func (s *Store) Expected(h Entry) bool {
	e := s.entries.Get(h)
	return e != nil && (e.fills > 0 || e.locations.Len() > 0)
}

// MayCome says whether a key's chunk is here, or on its way, or kept by its sender.
func (s *Store) MayCome(hash uint64, key []byte) bool {
	e := s.Find(hash, key)
	_, ready := s.Ready(e)
	return ready || s.Expected(e)
}

// FirstLocation is the oldest of the entry's locations, or zero.
func (s *Store) FirstLocation(h Entry) Location {
	if e := s.entries.Get(h); e != nil {
		return e.locations.Front()
	}
	return 0
}

// NextLocation is the one after it, or zero.
func (s *Store) NextLocation(at Location) Location { return s.locations.Next(at) }

// Offered says which item of which offer a location is.
func (s *Store) Offered(at Location) (offer table.Handle, item uint32) {
	p := s.locations.Get(at)
	return p.offer, p.item
}
