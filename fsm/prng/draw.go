// Package prng derives identifiers and secrets from a seed, so that a state machine needs no other source of
// randomness.
//
// A [Source] draws numbers, for example the seeds of tables and the jitter of retries. A [Shuffle] numbers things in a
// secret order, for example grants (package memory).
//
// A caller may rely on the following:
//
//   - The same seed gives the same draws in the same order on every machine.
//   - The first draw of a Source cannot be guessed without the seed. (Splitmix64 can be inverted: an observer that
//     knows a draw can compute the next draws.)
//   - A Shuffle gives no number of a lane twice among the first 2^48, and a number cannot be guessed without the key,
//     even by a peer that has seen earlier numbers.
//
// Example: a rank is created with seed 42.
//
//	source := prng.New(42)
//	tables := source.Next()         // the seed of hash tables: the same in each run with seed 42
//	grants := prng.NewShuffle(source.Next(), source.Next())
//	first := grants.Nth(3, 0)       // the first number for slot 3
//	second := grants.Nth(3, 1)      // a number that cannot be guessed from first
package prng

// Source is a generator of 64-bit numbers (splitmix64). The zero value is a source with seed 0.
type Source struct{ state uint64 }

// New returns a source with the given seed.
func New(seed uint64) Source { return Source{state: seed} }

// Next draws 64 bits.
func (s *Source) Next() uint64 {
	s.state += 0x9E3779B97F4A7C15
	z := s.state
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

// Read fills b with drawn bytes, a draw for each byte. Read never fails.
func (s *Source) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = byte(s.Next())
	}
	return len(b), nil
}
