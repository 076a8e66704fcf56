package plane

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/kvferry/kvferry/effects"
)

// # Read permits
//
// Peers on the same host read a pool without involving the owner's process. The owner therefore publishes, in memory
// that peers map read-only, which reads are allowed: a record for each read lease that stands, and for each page the
// number of bytes that read leases cover. A reader compares the word of the lease with the lease's id, and the
// generation of the page with the generation that was offered, both before and after copying a page. The target of a
// push compares the push's permit in the same way; the argument in permit.go holds here, too, with "revoke" for
// "cancel" and "the reader" for T. Revoke changes the word, with a full barrier, before Revoked is posted. So a copy
// that passes both comparisons consists of bytes that nobody stored into from the first load of the copy to the last
// load (M3).
//
// Any number of reads may be in flight under a lease: the word belongs to the lease, and readers change nothing.
//
// The low 16 bits of a grant's id give the slot of the record; no two grants in force have these bits in common. The
// record also names the peer of the lease, and a reader treats another peer's lease as refused. That keeps order among
// honest processes but is no protection: a process that has mapped the pool can read the whole pool. Therefore only
// processes of the same user are allowed to map a pool.
//
//	words                       contents
//	3s, 3s+1, 3s+2              the lease in slot s: the id (zero if there is none) and the peer
//	3*2^16 and on, 32 bits each a page: the number of bytes under read leases

const (
	readSlots      = 1 << 16
	readSlotMask   = readSlots - 1
	readSlotWords  = 3
	readTableBytes = readSlots * readSlotWords * 8
)

// readPermits are the read permits of a pool. The methods are not safe for concurrent use.
type readPermits struct {
	file  *os.File
	mem   []byte
	table readTable
}

// A readTable views the words of the read permits, of this node's pool or of a peer's.
type readTable struct {
	slots       []uint64
	leasedBytes []uint32
}

func readTableOf(mem []byte, pages uint32) readTable {
	return readTable{
		slots:       unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(mem))), readSlots*readSlotWords),
		leasedBytes: unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(mem[readTableBytes:]))), pages),
	}
}

func readPermitsBytes(pages uint32) uint64 { return readTableBytes + uint64(pages)*4 }

// leaseSlot returns the record of a lease.
func (t readTable) leaseSlot(id effects.GrantID) []uint64 {
	at := int(id&readSlotMask) * readSlotWords
	return t.slots[at : at+readSlotWords]
}

func newReadPermits(pages uint32) (*readPermits, error) {
	file, mem, err := newSegment(context.Background(), "kvferry-reads", readPermitsBytes(pages), false)
	if err != nil {
		return nil, err
	}
	return &readPermits{file: file, mem: mem, table: readTableOf(mem, pages)}, nil
}

// issuePermit lets a peer read under a lease. The slot must be free.
func (r *readPermits) issuePermit(id effects.GrantID, peer effects.Incarnation) {
	slot := r.table.leaseSlot(id)
	if current := atomic.LoadUint64(&slot[0]); current != 0 {
		panic(fmt.Sprintf("BUG: grant %d needs the permit slot of grant %d, which is still in force", id, current))
	}
	atomic.StoreUint64(&slot[1], binary.NativeEndian.Uint64(peer[:8]))
	atomic.StoreUint64(&slot[2], binary.NativeEndian.Uint64(peer[8:]))
	atomic.StoreUint64(&slot[0], uint64(id))
}

// withdrawPermit ends an issued permit: no copy under this lease passes the comparisons any more, whether the copy is
// in progress anywhere or begins later.
func (r *readPermits) withdrawPermit(id effects.GrantID) { publishWord(&r.table.leaseSlot(id)[0], 0) }

// setLeasedBytes publishes how many bytes of a page are under read leases.
func (r *readPermits) setLeasedBytes(index, length uint32) {
	atomic.StoreUint32(&r.table.leasedBytes[index], length)
}

func (r *readPermits) leasedBytes(index uint32) uint32 {
	return atomic.LoadUint32(&r.table.leasedBytes[index])
}

func (r *readPermits) close() error {
	if err := syscall.Munmap(r.mem); err != nil {
		return fmt.Errorf("unmap the read permits: %w", err)
	}
	return r.file.Close()
}

// PeerReadPermits are the read permits of a peer's pool, mapped read-only.
type PeerReadPermits struct {
	mem   []byte
	table readTable
}

// MapReadPermits checks and maps the read permits of a peer's pool that has so many pages. The file fd still belongs
// to the caller.
func MapReadPermits(fd uintptr, pages uint32) (*PeerReadPermits, error) {
	size, _, err := sealedSize(fd)
	if err != nil {
		return nil, err
	}
	if want := readPermitsBytes(pages); size != want {
		return nil, fmt.Errorf("the peer's read permits take %d bytes; %d pages need %d", size, pages, want)
	}
	mem, err := mapForReading(fd, size)
	if err != nil {
		return nil, err
	}
	return &PeerReadPermits{mem, readTableOf(mem, pages)}, nil
}

// Permit returns the permit of a lease that lets reader read length bytes of a page. Codes: OK; Withdrawn: no such
// lease stands, or no lease covers the page; Refused: another peer has the lease; TooLarge: fewer bytes are leased.
// Permit does not check that this very lease covers the page: the offer of the page named the lease. The index must
// lie within the mapping.
func (p *PeerReadPermits) Permit(id effects.GrantID, reader effects.Incarnation, index,
	length uint32) (Permit, effects.Code) {
	slot := p.table.leaseSlot(id)
	permit := Permit{&slot[0], uint64(id)}
	forReader := atomic.LoadUint64(&slot[1]) == binary.NativeEndian.Uint64(reader[:8]) &&
		atomic.LoadUint64(&slot[2]) == binary.NativeEndian.Uint64(reader[8:])
	leasedBytes := atomic.LoadUint32(&p.table.leasedBytes[index])
	switch {
	// The permit is checked last, because the record may have been another lease's before: if the permit stands now,
	// the loads above saw this lease's record.
	case id == 0 || !permit.isValid():
		return permit, effects.Withdrawn
	case !forReader:
		return permit, effects.Refused
	case leasedBytes == 0:
		return permit, effects.Withdrawn
	case length > leasedBytes:
		return permit, effects.TooLarge
	}
	return permit, effects.OK
}

// Unmap ends the mapping. No Permit may be used afterwards.
func (p *PeerReadPermits) Unmap() error { return syscall.Munmap(p.mem) }
