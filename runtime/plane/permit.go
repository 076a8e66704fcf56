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
// A page's life lasts from its reservation to its release, over many transfers, and its engine may store into it
// as soon as a transfer is settled. So a generation cannot tell a copy that a slow peer makes too late:
//
//  1. I pushes page p; the thread of target T that shall copy it is held up, for as long as it pleases.
//  2. I's machine cancels, or the link ends. The engine gets p back and stores other content, in the same life.
//  3. The thread goes on, copies what it should not, and finds the generation that it was told.
//
// I cannot reach T's threads, and must not wait for them: T may be frozen. Hence each transfer in progress has a word
// in memory of I that peers map read-only. It holds the transfer's number while the transfer runs. I changes it before
// it says that the transfer is settled; T compares it before and after each page's copy, between the same barriers as
// the generation (see generation.go, with "withdraw" for W1 and W2). A copy that passes was made of bytes that were
// lent from its first load to its last. What it copied stays right, so nothing has to be compared again when the page
// lands: T's copy is T's.
//
// If I dies its words stand for good, as long as T has them mapped. So does its memory, in which nobody stores any
// more; and nobody was storing in the pages of a transfer that ran, for they were whole when it began.

// permitsMax bounds what a peer can make us map: as many as a plane may have transfers.
const permitsMax = 1 << 20

// Permits are the words of one plane's transfers. Its methods are not safe for concurrent use.
type Permits struct {
	file *os.File
	mem  []byte
	free []uint32
}

// NewPermits allocates words for n transfers at a time, from 1 to 2^20.
func NewPermits(n int) (*Permits, error) {
	if n < 1 || n > permitsMax {
		return nil, fmt.Errorf("%w: permits for %d transfers; give 1 to %d", ErrInvalid, n, permitsMax)
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

// File is the words as a file, to be sent to peers. It is the permits'.
func (p *Permits) File() *os.File { return p.file }

// Issue lets peers copy for a transfer. Its number must not be zero and must never have been issued before. It
// fails when all slots are taken.
func (p *Permits) Issue(number uint64) (slot uint32, ok bool) {
	if len(p.free) == 0 {
		return 0, false
	}
	slot = p.free[len(p.free)-1]
	p.free = p.free[:len(p.free)-1]
	atomic.StoreUint64(permitAt(p.mem, slot), number)
	return slot, true
}

// Withdraw ends an issued permit: no copy that is still in progress anywhere, or begun later, will pass for
// its transfer. From its return on the pages may be stored into.
func (p *Permits) Withdraw(slot uint32) {
	publish(permitAt(p.mem, slot), 0)
	p.free = append(p.free, slot)
}

// Close unmaps the words. Nothing may be issued or withdrawn afterwards; what peers mapped stays theirs.
func (p *Permits) Close() error {
	if err := syscall.Munmap(p.mem); err != nil {
		return fmt.Errorf("unmap the permits: %w", err)
	}
	return p.file.Close()
}

// PeerPermits are a peer's, mapped read-only.
type PeerPermits struct{ mem []byte }

// MapPermits checks and maps the permits of a peer. It closes nothing: fd is the caller's.
func MapPermits(fd uintptr) (*PeerPermits, error) {
	size, _, err := sealedSize(fd)
	if err != nil {
		return nil, err
	}
	if size < 8 || size > permitsBytes(permitsMax) || size%8 != 0 {
		return nil, fmt.Errorf("the peer's permits take %d bytes; give 8 for each of 1 to %d", size, permitsMax)
	}
	mem, err := mapForReading(fd, size)
	return &PeerPermits{mem}, err
}

// Has reports whether there is such a slot.
func (p *PeerPermits) Has(slot uint32) bool { return uint64(slot)*8 < uint64(len(p.mem)) }

// Permit is the permit of a transfer. The slot must be one that they have.
func (p *PeerPermits) Permit(slot uint32, number uint64) Permit {
	return Permit{permitAt(p.mem, slot), number}
}

// Unmap ends the mapping. No Permit may be used afterwards.
func (p *PeerPermits) Unmap() error { return syscall.Munmap(p.mem) }

// A Permit is a peer's leave to copy what it pushes in one transfer, for as long as that runs.
type Permit struct {
	word   *uint64
	number uint64
}

func (p Permit) stands() bool { return atomic.LoadUint64(p.word) == p.number }

// permitAt panics where a slot is beyond the words.
func permitAt(mem []byte, slot uint32) *uint64 {
	return (*uint64)(unsafe.Pointer(unsafe.SliceData(mem[uint64(slot)*8:][:8])))
}
