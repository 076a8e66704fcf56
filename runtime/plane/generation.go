package plane

import (
	"sync/atomic"

	"github.com/kvferry/kvferry/effects"
)

// # Barriers
//
// A reader in another process copies a page without any lock, and checks afterwards whether the page still had the
// generation that it wanted (M3). Writer W puts page p into a new generation g'; reader R wants the content of
// generation g:
//
//	W1  generation[p] := g'               R1  a := generation[p]
//	W2  full barrier                      R2  copy p
//	W3  store the new bytes into p        R3  barrier: loads before, loads after
//	                                      R4  b := generation[p]
//
// R accepts the copy if a = b = g. Suppose that an accepted copy contained a byte that W stored in W3. R loaded that
// byte in R2, so W3 was visible before R4. W1 is visible before W3 because of W2, hence before R4, which must then
// have read g' or a later generation. Generations are never reused, so b ≠ g: a contradiction. The argument needs both
// barriers, and the comparison with g as well: comparing only a with b would accept a page that went through two
// generations in between.
//
// Go's sync/atomic operations are sequentially consistent among each other, but that says nothing about plain accesses
// before and after an atomic operation. Therefore the instructions matter to which these operations compile:
//
//   - amd64: Swap and Store are XCHG, a full barrier, and loads are not reordered with loads.
//   - arm64: Swap is SWPAL or a pair of LDAXR and STLXR, Store is STLR, Load is LDAR. A later plain store may pass an
//     STLR, but not a following LDAR, and STLR to LDAR stays in order: so W2 is the Swap and a Load after the Swap. An
//     earlier plain load may pass an LDAR, but not an STLR, and STLR to LDAR stays in order: so R3 is a Store to
//     memory of our own before the Load R4.
//
// Nobody has made the argument for further processors yet, so the shm plane opens on these two only. The remaining
// planes compare nothing around copies.
//
// In an attachable pool the engine's process, and not the owner's, may make the stores (W3), and must then not store
// before a permit is withdrawn. The engine stores after this process has sent a message that gives the page to the
// engine, so after W2: everything that happened before a message was sent is visible to the process that acts upon the
// message.
//
// A Mover in assembly obeys the same rules: all loads are ordinary loads (prefetches promise nothing), and
// non-temporal stores are fenced.
//
// The compiler moves no memory access across an atomic operation, which counts as a call with memory effects. The
// stress test in generation_test.go searches for torn copies that pass.

// publishWord performs W1 and W2.
func publishWord(word *uint64, value uint64) {
	atomic.SwapUint64(word, value)
	_ = atomic.LoadUint64(word)
}

// A Mover copies src to dst, which has the same length and does not overlap src. When a Mover returns, all of its
// loads are complete, and its stores, of whatever kind, are ordered before later stores of the caller.
type Mover func(dst, src []byte)

// Move is the Mover that uses Go's copy.
func Move(dst, src []byte) { copy(dst, src) }

// CopyPage copies the first len(dst) bytes of generation g of a page into dst. OK means that dst holds these bytes and
// that the permit stood while the bytes were read. With every code but OK, dst holds garbage: Stale means that the
// page is in another generation, Cancelled that the permit was withdrawn. The index and len(dst) must lie within the
// mapping.
func (m *Mapping) CopyPage(dst []byte, index uint32, g effects.Generation, permit Permit, move Mover) effects.Code {
	return m.CopyPart(dst, index, 0, g, permit, move)
}

// CopyPart copies bytes of a page like [Mapping.CopyPage], beginning at offset from.
func (m *Mapping) CopyPart(
	dst []byte, index, from uint32, g effects.Generation, permit Permit, move Mover,
) effects.Code {
	word := &m.generations[index]
	if code := compareWords(word, g, permit); code != effects.OK { // R1
		return code
	}
	move(dst, pageOf(m.mem, m.pageBytes, index)[from:][:len(dst)]) // R2
	var fence uint64
	atomic.StoreUint64(&fence, 1)        // R3
	return compareWords(word, g, permit) // R4
}

// compareWords checks the permit last. An owner withdraws the permits of a page before it puts the page into another
// generation, so if both have changed, the withdrawal is the reason.
func compareWords(word *uint64, g effects.Generation, permit Permit) effects.Code {
	same := atomic.LoadUint64(word) == uint64(g)
	switch {
	case !permit.isValid():
		return effects.Cancelled
	case !same:
		return effects.Stale
	}
	return effects.OK
}

// Contains reports whether a page with this index and length lies within the mapping.
func (m *Mapping) Contains(index, length uint32) bool {
	return index < m.pages && uint64(length) <= m.pageBytes
}
