package table

// Array is a sequence of values that grows without moving its values. It consists of pieces with a fixed number of
// values, and only the first piece begins smaller and is copied when it grows. So adding a value to a table of a
// million rows is no more work than adding a value to a small table. The zero value is empty. A pointer to a value is
// valid until the array grows.
type Array[T any] struct {
	pieces [][]T
	n      int
}

const (
	least   = 4 // initial capacity of the first piece, in values
	perBit  = 8 // a piece holds 1<<perBit values
	piece   = 1 << perBit
	inPiece = piece - 1 // mask for the index within a piece
)

// Emptied returns an empty array in the memory of a. The caller must not use a afterwards.
func (a *Array[T]) Emptied() Array[T] { return Array[T]{pieces: emptied(a.pieces)} }

// Len returns the number of values.
func (a *Array[T]) Len() int { return a.n }

// At returns a pointer to the value with index i, which must exist.
func (a *Array[T]) At(i int) *T { return place(a.pieces, i) }

// Push appends a value. The array never holds more than most values, which limits the memory of the first piece.
func (a *Array[T]) Push(v T, most int) {
	a.pieces = pushed(a.pieces, a.n, v, most)
	a.n++
}

// Pop removes the last value.
func (a *Array[T]) Pop() {
	a.n--
	last := &a.pieces[a.n>>perBit]
	*last = (*last)[:a.n&inPiece]
}

// place returns a pointer to the value with index i of pieces.
func place[T any](pieces [][]T, i int) *T { return &pieces[i>>perBit][i&inPiece] }

// pushed appends v to pieces that hold n values, and will never hold more than most.
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

// emptied returns pieces without values, in the memory of the first piece.
func emptied[T any](pieces [][]T) [][]T {
	if len(pieces) == 0 {
		return nil
	}
	clear(pieces[0]) // Values behind len were never set, or are set before they are read.
	pieces[0] = pieces[0][:0]
	return pieces[:1]
}
