package plane

import (
	"sync/atomic"

	"github.com/kvferry/kvferry/effects"
)

// # Barriers
//
// A reader in another process copies a page without any lock and asks afterwards whether it was the page it wanted.
// Writer W gives page p a new life; reader R wants life g of it:
//
//	W1  generation[p] := g'               R1  a := generation[p]
//	W2  full barrier                      R2  copy p
//	W3  store the new bytes into p        R3  barrier: loads before, loads after
//	                                      R4  b := generation[p]
//
// R believes the copy if a = b = g. Suppose it then held one byte of W3. That byte was loaded in R2, so W3 was visible
// before R4; W1 is visible before W3 (W2), hence before R4, which then reads g' or a later one. Generations are never
// reused, so b ≠ g: contradiction. It takes both barriers, and comparing with g instead of a with b alone: else a
// page that lived twice between would pass.
//
// Go's sync/atomic operations are sequentially consistent among each other, but that says nothing about the plain
// accesses around them, so here is what they compile to:
//
//   - amd64: Swap and Store are XCHG, a full barrier, and loads are not reordered with loads.
//   - arm64: Swap is SWPAL or a pair of LDAXR and STLXR, Store is STLR, Load is LDAR. A later plain
//     store may pass an STLR, but not a following LDAR, and STLR to LDAR stays in order: so W2 is
//     the Swap and a Load after it. An earlier plain load may pass an LDAR, but not an STLR, and
//     STLR to LDAR stays in order: so R3 is a Store to memory of our own before the Load R4.
//
// Other processors have no argument here yet, so the shm plane does not open on them; the other planes compare nothing
// around copies.
//
// Of an attachable pool an engine in a process of its own may be who stores (W3), or who shall no longer when a permit
// is withdrawn. It stores when this process has told it by a message that a page is its own, so after W2: what came
// before a message is visible to whoever acts upon it.
//
// A Mover in assembly is bound by the same: its loads are ordinary ones, prefetches among them promise nothing, and it
// fences its stores if they are non-temporal.
//
// The compiler moves no memory access over an atomic one, which it treats as a call with memory effects. The stress
// test in generation_test.go looks for torn copies that pass.

// publish is W1 and W2.
func publish(word *uint64, value uint64) {
	atomic.SwapUint64(word, value)
	_ = atomic.LoadUint64(word)
}

// A Mover copies src to dst, which is as long and does not overlap it. Whatever kind of stores it uses,
// they are ordered before the caller's later ones when it returns, and its loads have been done.
type Mover func(dst, src []byte)

// Move is the Mover that is Go's copy.
func Move(dst, src []byte) { copy(dst, src) }

// Copy copies the first len(dst) bytes of life g of a page into dst. OK says that this is what dst now holds, and that
// the permit stood for as long as it was read. Else dst holds garbage. Codes: Stale, the page is in another
// life; Cancelled, the permit was withdrawn. The index and len(dst) must be within the mapping.
func (m *Mapping) Copy(dst []byte, index uint32, g effects.Generation, permit Permit, move Mover) effects.Code {
	return m.CopyFrom(dst, index, 0, g, permit, move)
}

// CopyFrom is Copy of the bytes from one on.
func (m *Mapping) CopyFrom(
	dst []byte, index, from uint32, g effects.Generation, permit Permit, move Mover,
) effects.Code {
	word := &m.table[index]
	if code := compare(word, g, permit); code != effects.OK { // R1
		return code
	}
	move(dst, pageOf(m.mem, m.pageBytes, index)[from:][:len(dst)]) // R2
	var fence uint64
	atomic.StoreUint64(&fence, 1)   // R3
	return compare(word, g, permit) // R4
}

// compare looks at the permit last: who gives a page another life has withdrawn its permits before, and that is the
// reason.
func compare(word *uint64, g effects.Generation, permit Permit) effects.Code {
	same := atomic.LoadUint64(word) == uint64(g)
	switch {
	case !permit.stands():
		return effects.Cancelled
	case !same:
		return effects.Stale
	}
	return effects.OK
}

// Holds reports whether index and length lie within the mapping.
func (m *Mapping) Holds(index, length uint32) bool {
	return index < m.pages && uint64(length) <= m.pageBytes
}
