package world

// An Arena hands out pieces of a large array that is kept from run to run. Pieces never move. When the array is full, a
// new array of twice the size is allocated, and the old array lives as long as any piece is in use. After a few runs, a
// single array is large enough for all pieces.
type Arena[T any] struct{ free, block []T }

// Alloc returns n zero values.
func (a *Arena[T]) Alloc(n int) []T {
	if n > len(a.free) {
		a.block = make([]T, max(n, 2*len(a.block)))
		a.free = a.block
	}
	s := a.free[:n:n]
	a.free = a.free[n:]
	return s
}

// AllocCopy returns a pointer to a copy of v.
func (a *Arena[T]) AllocCopy(v T) *T {
	p := &a.Alloc(1)[0]
	*p = v
	return p
}

// CopySlice returns a copy of s.
func (a *Arena[T]) CopySlice(s []T) []T {
	c := a.Alloc(len(s))
	copy(c, s)
	return c
}

// Reset takes back all pieces.
func (a *Arena[T]) Reset() {
	clear(a.block[:len(a.block)-len(a.free)])
	a.free = a.block
}
