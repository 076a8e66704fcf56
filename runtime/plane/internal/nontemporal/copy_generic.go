//go:build !amd64

package nontemporal

// All architectures without an assembly loop use Go's copy until a loop is written and measured.
const accelerated = false

func copyPiece(dst, src []byte) { copy(dst, src) }
