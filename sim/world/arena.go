package world

// An Arena hands out pieces of one large array that is kept from run to run. Pieces never move: what does not fit any
// more goes into a new array, twice as large, and the old one lives as long as its pieces. After a few runs one array
// is enough for all.
type Arena[T any] struct{ rest, whole []T }

// Take gives n zero values.
func (a *Arena[T]) Take(n int) []T {
	if n > len(a.rest) {
		a.whole = make([]T, max(n, 2*len(a.whole)))
		a.rest = a.whole
	}
	s := a.rest[:n:n]
	a.rest = a.rest[n:]
	return s
}

// One gives a place that holds v.
func (a *Arena[T]) One(v T) *T {
	p := &a.Take(1)[0]
	*p = v
	return p
}

// Keep gives a copy of s.
func (a *Arena[T]) Keep(s []T) []T {
	c := a.Take(len(s))
	copy(c, s)
	return c
}

// Reset takes everything back.
func (a *Arena[T]) Reset() {
	clear(a.whole[:len(a.whole)-len(a.rest)])
	a.rest = a.whole
}
