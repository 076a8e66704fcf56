package store

import (
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/table"
)

// Location is a handle on one remote location of a key.
type Location = table.Handle

// A location is a place at a sender from which the chunk of a key can be read: an item of an offer. The offer belongs
// to the caller; the store knows only its handle.
type location struct {
	entry Entry
	offer table.Handle
	item  uint32
}

// LocationsLeft returns the number of locations that still fit.
func (s *Store) LocationsLeft() int { return s.locations.Max() - s.locations.Len() }

// CountLocations returns the number of locations.
func (s *Store) CountLocations() int { return s.locations.Len() }

// VisitLocations calls visit with the offer of each location. Use it for inspection only.
func (s *Store) VisitLocations(visit func(offer table.Handle)) {
	for slot := range s.locations.Slots() {
		if x := s.locations.Get(s.locations.At(slot)); x != nil {
			visit(x.offer)
		}
	}
}

// AttachLocation records that an item of an offer has the chunk of a key. The caller has checked HasRoom and
// LocationsLeft.
func (s *Store) AttachLocation(hash uint64, key []byte, offer table.Handle, item uint32) Location {
	h := s.findOrAdd(hash, key)
	e := s.entries.Get(h)
	at, p := s.locations.Add()
	*p = location{entry: h, offer: offer, item: item}
	s.locations.PushBack(&e.locations, at)
	return at
}

// DetachLocation removes a location. The entry is removed with it if nothing else keeps the entry.
func (s *Store) DetachLocation(at Location, v *env.Env) {
	h := s.locations.Get(at).entry
	s.locations.Unlink(&s.entries.Get(h).locations, at)
	s.locations.Remove(at)
	s.DropUnused(h, v)
}

// HashOfLocation returns the hash of the key that has the location.
func (s *Store) HashOfLocation(at Location) uint64 {
	return s.entries.Get(s.locations.Get(at).entry).hash
}

// IsExpected reports whether a fill of the entry is in flight, or an offer of the chunk is deferred.
func (s *Store) IsExpected(h Entry) bool {
	e := s.entries.Get(h)
	return e != nil && (e.fills > 0 || e.locations.Len() > 0)
}

// MayArrive reports whether the chunk of a key is ready, is being filled, or can be read at a sender.
func (s *Store) MayArrive(hash uint64, key []byte) bool {
	e := s.Find(hash, key)
	_, ready := s.ReadyPage(e)
	return ready || s.IsExpected(e)
}

// FirstLocation returns the oldest location of the entry, or zero.
func (s *Store) FirstLocation(h Entry) Location {
	if e := s.entries.Get(h); e != nil {
		return e.locations.Front()
	}
	return 0
}

// NextLocation returns the location of the same key that follows, or zero.
func (s *Store) NextLocation(at Location) Location { return s.locations.Next(at) }

// OfferOf returns the offer of a location and the index of the item in the offer.
func (s *Store) OfferOf(at Location) (offer table.Handle, item uint32) {
	p := s.locations.Get(at)
	return p.offer, p.item
}
