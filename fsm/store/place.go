package store

import (
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/table"
)

// Place is a handle on one place of a key.
type Place = table.Handle

// A place is where a sender has a key's chunk for us to read: an item of an offer. The offer
// is the caller's; here it is a name.
type place struct {
	entry Entry
	offer table.Handle
	item  uint32
}

// PlacesLeft is the number of places that still fit.
func (s *Store) PlacesLeft() int { return s.places.Max() - s.places.Len() }

// Places is the number of places.
func (s *Store) Places() int { return s.places.Len() }

// Attach notes that an offer has the key's chunk. Room and PlacesLeft must hold.
func (s *Store) Attach(hash uint64, key []byte, offer table.Handle, item uint32) Place {
	h := s.need(hash, key)
	e := s.entries.Get(h)
	at, p := s.places.Add()
	*p = place{entry: h, offer: offer, item: item}
	s.places.PushBack(&e.places, at)
	return at
}

// Detach ends what Attach noted. An entry that nothing else keeps goes.
func (s *Store) Detach(at Place, v *env.Env) {
	h := s.places.Get(at).entry
	s.places.Unlink(&s.entries.Get(h).places, at)
	s.places.Remove(at)
	s.Settle(h, v)
}

// HashAt is the hash of the key that has the place.
func (s *Store) HashAt(at Place) uint64 { return s.entries.Get(s.places.Get(at).entry).hash }

// Expected says whether a fill of the entry is under way, or a sender's offer of it is kept.
func (s *Store) Expected(h Entry) bool {
	e := s.entries.Get(h)
	return e != nil && (e.fills > 0 || e.places.Len() > 0)
}

// MayCome says whether a key's chunk is here, or on its way, or kept by its sender.
func (s *Store) MayCome(hash uint64, key []byte) bool {
	e := s.Find(hash, key)
	_, ready := s.Ready(e)
	return ready || s.Expected(e)
}

// FirstPlace is the oldest of the entry's places, or zero.
func (s *Store) FirstPlace(h Entry) Place {
	if e := s.entries.Get(h); e != nil {
		return e.places.Front()
	}
	return 0
}

// NextPlace is the one after it, or zero.
func (s *Store) NextPlace(at Place) Place { return s.places.Next(at) }

// Offered says which item of which offer a place is.
func (s *Store) Offered(at Place) (offer table.Handle, item uint32) {
	p := s.places.Get(at)
	return p.offer, p.item
}
