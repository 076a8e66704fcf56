//go:build !amd64

package nontemporal

// Other architectures take Go's copy until somebody has measured theirs.
const accelerated = false

func copyPiece(dst, src []byte) { copy(dst, src) }
