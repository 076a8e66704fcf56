package world

// An Arena hands out pieces of a large array that is kept from run to run. Pieces never move. When the array is full, a
// new array of twice the size is allocated, and the old array lives as long as any piece is in use. After a few runs, a
// single array is large enough for all pieces.
type Arena[T any] struct{ rest, whole []T }

// Take returns n zero values.
func (a *Arena[T]) Take(n int) []T {
	if n > len(a.rest) {
		a.whole = make([]T, max(n, 2*len(a.whole)))
		a.rest = a.whole
	}
	s := a.rest[:n:n]
	a.rest = a.rest[n:]
	return s
}

// One returns a pointer to a copy of v.
func (a *Arena[T]) One(v T) *T {
	p := &a.Take(1)[0]
	*p = v
	return p
}

// Keep returns a copy of s.
func (a *Arena[T]) Keep(s []T) []T {
	c := a.Take(len(s))
	copy(c, s)
	return c
}

// Reset takes back all pieces.
func (a *Arena[T]) Reset() {
	clear(a.whole[:len(a.whole)-len(a.rest)])
	a.rest = a.whole
}
