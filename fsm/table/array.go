package table

// An Array is a row of values that grows without moving what it has: in pieces of so many values, of which the first
// begins small. So a table of a million rows takes one more in a step of no more work than a small one does. The zero
// value is empty. A pointer into it is good until it grows.
type Array[T any] struct {
	pieces [][]T
	n      int
}

const (
	least   = 4 // values that the first piece begins with
	perBit  = 8
	piece   = 1 << perBit
	inPiece = piece - 1
)

// Emptied returns an array without values, in the memory of a, which is not used any more.
func (a *Array[T]) Emptied() Array[T] { return Array[T]{pieces: emptied(a.pieces)} }

// Len is the number of values.
func (a *Array[T]) Len() int { return a.n }

// At is the value at i, which is one.
func (a *Array[T]) At(i int) *T { return place(a.pieces, i) }

// Push adds a value at the end. There are never more than most.
func (a *Array[T]) Push(v T, most int) {
	a.pieces = pushed(a.pieces, a.n, v, most)
	a.n++
}

// Pop takes the last value away.
func (a *Array[T]) Pop() {
	a.n--
	last := &a.pieces[a.n>>perBit]
	*last = (*last)[:a.n&inPiece]
}

// place is the value at i of pieces.
func place[T any](pieces [][]T, i int) *T { return &pieces[i>>perBit][i&inPiece] }

// pushed adds a value to n of them, of which there are never more than most.
func pushed[T any](pieces [][]T, n int, v T, most int) [][]T {
	in := n >> perBit
	if in == len(pieces) {
		pieces = append(pieces, nil)
	}
	last := &pieces[in]
	if len(*last) == cap(*last) {
		room := piece
		if in == 0 {
			room = max(1, min(max(least, 2*len(*last)), piece, most))
		}
		grown := make([]T, len(*last), room)
		copy(grown, *last)
		*last = grown
	}
	*last = append(*last, v)
	return pieces
}

// emptied are pieces without values.
func emptied[T any](pieces [][]T) [][]T {
	if len(pieces) == 0 {
		return nil
	}
	clear(pieces[0]) // Behind it nothing was written, or only what is written over before anybody sees it.
	pieces[0] = pieces[0][:0]
	return pieces[:1]
}
