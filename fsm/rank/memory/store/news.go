package store

// News are what happened to keys that others wait for: Gets, fetches and requests that were short. Who hears of them
// empties the list, in the same step or in as many as it takes. So who makes a chunk ready or loses one knows nobody
// who waits.
type news struct {
	became  []uint64 // hashes of keys that became ready
	readied uint64   // how many ever did
	lost    []uint64 // hashes of keys from whose sources one went: a fill, an offer kept, a request that waited
	dropped bool     // a chunk that was ready is not any more, and those that wait for all of theirs have not heard

	withdrawn []uint64 // hashes of keys whose pages the engine has back
}

func (n *news) emptied() news {
	return news{became: n.became[:0], lost: n.lost[:0], withdrawn: n.withdrawn[:0]}
}

func (n *news) becomes(hash uint64) {
	n.became = append(n.became, hash)
	n.readied++
}

// Became are the hashes of keys that became ready since HeardBecame.
func (s *Store) Became() []uint64 { return s.news.became }

// HeardBecame says that all who wait for the first n of them have heard.
func (s *Store) HeardBecame(n int) {
	s.news.became = append(s.news.became[:0], s.news.became[n:]...)
}

// Readied is how many keys ever became ready. Who missed n of its keys misses no fewer than n less those since.
func (s *Store) Readied() uint64 { return s.news.readied }

// Dropped says, once, that a chunk which was ready is not here any more.
func (s *Store) Dropped() bool {
	was := s.news.dropped
	s.news.dropped = false
	return was
}

// Lose notes that one thing is gone from which the key's chunk was expected.
func (s *Store) Lose(hash uint64) { s.news.lost = append(s.news.lost, hash) }

// Lost are the hashes given to Lose since HeardLost. One may stand there more than once.
func (s *Store) Lost() []uint64 { return s.news.lost }

// HeardLost says that all who wait for them have heard.
func (s *Store) HeardLost() { s.news.lost = s.news.lost[:0] }
