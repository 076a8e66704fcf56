package nontemporal

// pieceBytes is the number of bytes that are copied without a chance for the scheduler to stop the goroutine: assembly
// cannot be preempted, and the garbage collector waits until a piece is copied. A piece takes about 10 µs. The fence
// at the end of each piece costs less than can be measured.
const pieceBytes = 256 << 10

// blockBytes is the number of bytes that one iteration of the assembly loop copies. Go's copy copies the rest.
const blockBytes = 128

// Copy copies src to dst, which must have the same length and must not overlap src. When Copy returns, all stores of
// the copy are ordered before any later store of the caller, like ordinary stores.
func Copy(dst, src []byte) {
	if len(dst) != len(src) {
		panic("BUG: copy between different lengths")
	}
	if !accelerated {
		copy(dst, src)
		return
	}
	for len(dst) > 0 {
		n := min(len(dst), pieceBytes)
		copyPiece(dst[:n:n], src[:n:n])
		dst, src = dst[n:], src[n:]
	}
}

// IsAccelerated reports whether Copy uses its own assembly on this machine.
func IsAccelerated() bool { return accelerated }
