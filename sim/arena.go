package sim

// An arena hands out pieces of one large array that is kept from run to run. Pieces never
// move: what does not fit any more goes into a new array, twice as large, and the old one
// lives as long as its pieces. After a few runs one array is enough for all.
type arena[T any] struct{ rest, whole []T }

// take gives n zero values.
func (a *arena[T]) take(n int) []T {
	if n > len(a.rest) {
		a.whole = make([]T, max(n, 2*len(a.whole)))
		a.rest = a.whole
	}
	s := a.rest[:n:n]
	a.rest = a.rest[n:]
	return s
}

// one gives a place that holds v.
func (a *arena[T]) one(v T) *T {
	p := &a.take(1)[0]
	*p = v
	return p
}

// keep gives a copy of s.
func (a *arena[T]) keep(s []T) []T {
	c := a.take(len(s))
	copy(c, s)
	return c
}

// reset takes everything back.
func (a *arena[T]) reset() {
	clear(a.whole[:len(a.whole)-len(a.rest)])
	a.rest = a.whole
}
