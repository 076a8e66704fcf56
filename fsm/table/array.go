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
	minCapacity = 4 // initial capacity of the first piece, in values
	pieceBits   = 8 // a piece holds 1<<pieceBits values
	pieceSize   = 1 << pieceBits
	pieceMask   = pieceSize - 1 // mask for the index within a piece
)

// Recycle returns an empty array in the memory of a. The caller must not use a afterwards.
func (a *Array[T]) Recycle() Array[T] { return Array[T]{pieces: recyclePieces(a.pieces)} }

// Len returns the number of values.
func (a *Array[T]) Len() int { return a.n }

// At returns a pointer to the value with index i, which must exist.
func (a *Array[T]) At(i int) *T { return valueAt(a.pieces, i) }

// Push appends a value. The array never holds more than limit values, which limits the memory of the first piece.
func (a *Array[T]) Push(v T, limit int) {
	a.pieces = appendValue(a.pieces, a.n, v, limit)
	a.n++
}

// Pop removes the last value.
func (a *Array[T]) Pop() {
	a.n--
	last := &a.pieces[a.n>>pieceBits]
	*last = (*last)[:a.n&pieceMask]
}

// valueAt returns a pointer to the value with index i of pieces.
func valueAt[T any](pieces [][]T, i int) *T { return &pieces[i>>pieceBits][i&pieceMask] }

// appendValue appends v to pieces that hold n values, and will never hold more than limit.
func appendValue[T any](pieces [][]T, n int, v T, limit int) [][]T {
	pieceIndex := n >> pieceBits
	if pieceIndex == len(pieces) {
		pieces = append(pieces, nil)
	}
	last := &pieces[pieceIndex]
	if len(*last) == cap(*last) {
		capacity := pieceSize
		if pieceIndex == 0 {
			capacity = max(1, min(max(minCapacity, 2*len(*last)), pieceSize, limit))
		}
		grown := make([]T, len(*last), capacity)
		copy(grown, *last)
		*last = grown
	}
	*last = append(*last, v)
	return pieces
}

// recyclePieces returns pieces without values, in the memory of the first piece.
func recyclePieces[T any](pieces [][]T) [][]T {
	if len(pieces) == 0 {
		return nil
	}
	clear(pieces[0]) // Values behind len were never set, or are set before they are read.
	pieces[0] = pieces[0][:0]
	return pieces[:1]
}
