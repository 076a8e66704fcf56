package nontemporal

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

// lineBytes is the size of the unit in which the processor combines non-temporal stores.
const lineBytes = 64

var accelerated = cpu.X86.HasAVX2

// copyPiece copies whole blocks, beginning at the first full line of dst, with the assembly loop. Go's copy copies the
// bytes before and after these blocks.
func copyPiece(dst, src []byte) {
	head := int(-uintptr(unsafe.Pointer(unsafe.SliceData(dst))) & (lineBytes - 1))
	if len(dst) < head+blockBytes {
		copy(dst, src)
		return
	}
	body := (len(dst) - head) &^ (blockBytes - 1)
	copy(dst[:head], src)
	copyBlocks(&dst[head], &src[head], uintptr(body))
	copy(dst[head+body:], src[head+body:])
}

// copyBlocks copies n bytes, a positive multiple of blockBytes, to dst, which is aligned to lineBytes. The loop ends
// with SFENCE, because nothing less orders non-temporal stores.
//
//go:noescape
func copyBlocks(dst, src *byte, n uintptr)
