package plane

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// # Permits
//
// A page keeps the same generation from reservation to release, over many transfers, and the engine may store into the
// page as soon as a transfer is settled. So a generation cannot detect a copy that a slow peer makes too late.
// Example:
//
//   1. Initiator I pushes page p. The thread of target T that shall copy it is held up, for an unbounded time.
//   2. I's machine cancels the push, or the link ends. The engine gets p back and stores new content under the same
//      generation.
//   3. The thread continues, copies content that T must not have, and finds the generation of the push.
//
// I cannot stop T's threads and must not wait for T, because T may be frozen. Hence each transfer in flight has a word
// in memory of I that peers map read-only. The word holds the transfer's number while the transfer runs. I changes the
// word before reporting that the transfer is settled. T compares the word before and after the copy of each page,
// between the same barriers as the generation (see generation.go, with "withdraw" for W1 and W2). A copy that passes
// consists of bytes that were lent from the first load of the copy to the last load. The copy is T's own memory and
// stays right, so nothing has to be compared again when the page lands.
//
// If I dies, the words keep their values as long as T has mapped the memory. That does no harm: I's pages stay mapped
// as well, nobody stores into these pages any more, and the pages of a running transfer were complete when the
// transfer began.

// maxPermits is the largest number of transfers that a plane may have. The number bounds the memory that a peer can
// make this process map.
const maxPermits = 1 << 20

// Permits are the words of the transfers of a plane. The methods are not safe for concurrent use.
type Permits struct {
	file *os.File
	mem  []byte
	free []uint32
}

// NewPermits allocates words for n concurrent transfers; n is 1 to 2^20.
func NewPermits(n int) (*Permits, error) {
	if n < 1 || n > maxPermits {
		return nil, fmt.Errorf("%w: permits for %d transfers; give 1 to %d", ErrInvalid, n, maxPermits)
	}
	file, mem, err := newSegment(context.Background(), "kvferry-permits", permitsBytes(n), false)
	if err != nil {
		return nil, err
	}
	p := &Permits{file: file, mem: mem, free: make([]uint32, 0, n)}
	for slot := n - 1; slot >= 0; slot-- {
		p.free = append(p.free, uint32(slot))
	}
	return p, nil
}

func permitsBytes(n int) uint64 { return uint64(n) * 8 }

// PermitsFile returns the file of the words, to be sent to peers. The file belongs to the Permits.
func (p *Permits) PermitsFile() *os.File { return p.file }

// Issue lets peers copy for a transfer. The transfer's number must not be zero and must never have been issued
// before. Issue fails if all slots are in use.
func (p *Permits) Issue(number uint64) (slot uint32, ok bool) {
	if len(p.free) == 0 {
		return 0, false
	}
	slot = p.free[len(p.free)-1]
	p.free = p.free[:len(p.free)-1]
	atomic.StoreUint64(permitAt(p.mem, slot), number)
	return slot, true
}

// Withdraw ends an issued permit: no copy for the transfer passes the comparisons any more, whether the copy is in
// progress anywhere or begins later. When Withdraw returns, the pages may be stored into (M3).
func (p *Permits) Withdraw(slot uint32) {
	publishWord(permitAt(p.mem, slot), 0)
	p.free = append(p.free, slot)
}

// Close unmaps the words. Nothing may be issued or withdrawn afterwards. The mappings of peers stay.
func (p *Permits) Close() error {
	if err := syscall.Munmap(p.mem); err != nil {
		return fmt.Errorf("unmap the permits: %w", err)
	}
	return p.file.Close()
}

// PeerPermits are the permits of a peer, mapped read-only.
type PeerPermits struct{ mem []byte }

// MapPermits checks and maps the permits of a peer. The file fd still belongs to the caller.
func MapPermits(fd uintptr) (*PeerPermits, error) {
	size, _, err := sealedSize(fd)
	if err != nil {
		return nil, err
	}
	if size < 8 || size > permitsBytes(maxPermits) || size%8 != 0 {
		return nil, fmt.Errorf("the peer's permits take %d bytes; 8 bytes are expected for each of 1 to %d transfers", size, maxPermits)
	}
	mem, err := mapForReading(fd, size)
	return &PeerPermits{mem}, err
}

// Has reports whether this slot exists.
func (p *PeerPermits) Has(slot uint32) bool { return uint64(slot)*8 < uint64(len(p.mem)) }

// Permit returns the permit of a transfer. The slot must exist.
func (p *PeerPermits) Permit(slot uint32, number uint64) Permit {
	return Permit{permitAt(p.mem, slot), number}
}

// Unmap ends the mapping. No Permit may be used afterwards.
func (p *PeerPermits) Unmap() error { return syscall.Munmap(p.mem) }

// A Permit is a peer's permission to copy the pages of a transfer. The permit stands as long as the transfer runs.
type Permit struct {
	word   *uint64
	number uint64
}

func (p Permit) isValid() bool { return atomic.LoadUint64(p.word) == p.number }

// permitAt returns the word of a slot, and panics if the slot lies beyond the words.
func permitAt(mem []byte, slot uint32) *uint64 {
	return (*uint64)(unsafe.Pointer(unsafe.SliceData(mem[uint64(slot)*8:][:8])))
}
