#include "textflag.h"

// Source lines are prefetched one page of the system ahead, so that the walk of the page tables has
// begun as well. Prefetches may pass the end of the source, because a prefetch never faults. Shorter
// and longer distances were measured: 2 KiB to 8 KiB give the same speed, below 1 KiB the copy is
// slower.
#define AHEAD 4096

// func copyBlocks(dst, src *byte, n uintptr)
TEXT ·copyBlocks(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX

block:
	PREFETCHNTA AHEAD(SI)
	PREFETCHNTA (AHEAD+64)(SI)
	VMOVDQU  (SI), Y0
	VMOVDQU  32(SI), Y1
	VMOVDQU  64(SI), Y2
	VMOVDQU  96(SI), Y3
	VMOVNTDQ Y0, (DI)
	VMOVNTDQ Y1, 32(DI)
	VMOVNTDQ Y2, 64(DI)
	VMOVNTDQ Y3, 96(DI)
	ADDQ     $128, SI
	ADDQ     $128, DI
	SUBQ     $128, CX
	JNZ      block

	SFENCE
	VZEROUPPER
	RET
