package nontemporal

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

// lineBytes is what the processor combines non-temporal stores to.
const lineBytes = 64

var accelerated = cpu.X86.HasAVX2

// copyPiece copies the whole blocks from the first full line of dst on with the kernel, and what is
// before and behind them as ever.
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

// copyBlocks copies n bytes, a positive multiple of blockBytes, to dst, which is aligned to lineBytes.
// It ends with SFENCE: non-temporal stores are ordered by nothing less.
//
//go:noescape
func copyBlocks(dst, src *byte, n uintptr)
