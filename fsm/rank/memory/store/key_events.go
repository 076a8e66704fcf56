package store

// keyEvents lists what happened to keys for which other components wait: Gets, fetches, and requests that were short of
// pages. The component that notifies them empties the lists, in the same step or over several steps. So the code that
// makes a chunk ready or loses a chunk need not know which components wait.
type keyEvents struct {
	readyKeys    []uint64 // hashes of keys that became ready
	totalReadied uint64   // the number of keys that ever became ready
	// lostKeys has the hashes of keys that lost a possible source: a fill, a deferred offer, or a pending allocation
	// request.
	lostKeys     []uint64
	chunkDropped bool // a ready chunk was dropped, and PollDropped was not called since

	withdrawnKeys []uint64 // hashes of keys whose pages were given back to the engine
}

func (n *keyEvents) recycle() keyEvents {
	return keyEvents{readyKeys: n.readyKeys[:0], lostKeys: n.lostKeys[:0], withdrawnKeys: n.withdrawnKeys[:0]}
}

// addReady records that a key became ready.
func (n *keyEvents) addReady(hash uint64) {
	n.readyKeys = append(n.readyKeys, hash)
	n.totalReadied++
}

// ReadyKeys returns the hashes of the keys that became ready and were not yet removed by ClearReadyKeys.
func (s *Store) ReadyKeys() []uint64 { return s.events.readyKeys }

// ClearReadyKeys removes the first n hashes, after every component that waits for them was notified.
func (s *Store) ClearReadyKeys(n int) {
	s.events.readyKeys = append(s.events.readyKeys[:0], s.events.readyKeys[n:]...)
}

// TotalReadied returns the number of keys that ever became ready. If a request missed n of its keys when the number was
// r, the request now misses at least n - (TotalReadied() - r).
func (s *Store) TotalReadied() uint64 { return s.events.totalReadied }

// PollDropped reports, once, that a ready chunk was dropped.
func (s *Store) PollDropped() bool {
	dropped := s.events.chunkDropped
	s.events.chunkDropped = false
	return dropped
}

// RecordLostSource records that a key has lost one possible source of its chunk.
func (s *Store) RecordLostSource(hash uint64) { s.events.lostKeys = append(s.events.lostKeys, hash) }

// LostKeys returns the hashes that were passed to RecordLostSource since ClearLostKeys. A hash may occur more than
// once.
func (s *Store) LostKeys() []uint64 { return s.events.lostKeys }

// ClearLostKeys clears the list, after every component that waits for these keys was notified.
func (s *Store) ClearLostKeys() { s.events.lostKeys = s.events.lostKeys[:0] }
