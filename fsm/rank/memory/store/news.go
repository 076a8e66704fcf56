package store

// news lists what happened to keys for which other components wait: Gets, fetches, and requests that were short of
// pages. The component that notifies them empties the lists, in the same step or over several steps. So the code that
// makes a chunk ready or loses a chunk need not know which components wait.
type news struct {
	became  []uint64 // hashes of keys that became ready
	readied uint64   // the number of keys that ever became ready
	// lost has the hashes of keys that lost a possible source: a fill, a deferred offer, or a pending allocation
	// request.
	lost    []uint64
	dropped bool // a ready chunk was dropped, and Dropped was not called since

	withdrawn []uint64 // hashes of keys whose pages were given back to the engine
}

func (n *news) emptied() news {
	return news{became: n.became[:0], lost: n.lost[:0], withdrawn: n.withdrawn[:0]}
}

// becomes records that a key became ready.
func (n *news) becomes(hash uint64) {
	n.became = append(n.became, hash)
	n.readied++
}

// Became returns the hashes of the keys that became ready and were not yet removed by HeardBecame.
func (s *Store) Became() []uint64 { return s.news.became }

// HeardBecame removes the first n hashes, after every component that waits for them was notified.
func (s *Store) HeardBecame(n int) {
	s.news.became = append(s.news.became[:0], s.news.became[n:]...)
}

// Readied returns the number of keys that ever became ready. If a request missed n of its keys when the number was r,
// the request now misses at least n - (Readied() - r).
func (s *Store) Readied() uint64 { return s.news.readied }

// Dropped reports, once, that a ready chunk was dropped.
func (s *Store) Dropped() bool {
	was := s.news.dropped
	s.news.dropped = false
	return was
}

// Lose records that a key has lost one possible source of its chunk.
func (s *Store) Lose(hash uint64) { s.news.lost = append(s.news.lost, hash) }

// Lost returns the hashes that were passed to Lose since HeardLost. A hash may occur more than once.
func (s *Store) Lost() []uint64 { return s.news.lost }

// HeardLost clears the list, after every component that waits for these keys was notified.
func (s *Store) HeardLost() { s.news.lost = s.news.lost[:0] }
