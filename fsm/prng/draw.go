// Package prng makes identifiers and secrets out of one seed, so that a machine needs no other source of randomness.
//
// A caller may rely on this: the same seed gives the same draws in the same order on every machine; nobody who lacks
// the seed can guess the next one; and a Shuffle gives no number of a lane twice within 2^48.
package prng

// Source draws (splitmix64). The zero value is a source of seed 0.
type Source struct{ state uint64 }

// New returns the source of a seed.
func New(seed uint64) Source { return Source{state: seed} }

// Next draws 64 bits.
func (s *Source) Next() uint64 {
	s.state += 0x9E3779B97F4A7C15
	z := s.state
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

// Read fills b; it never fails.
func (s *Source) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = byte(s.Next())
	}
	return len(b), nil
}
