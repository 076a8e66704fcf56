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

// # Permits to read
//
// Peers of the same host read a pool without a word to its process, so the pool shows them what they may read, in
// memory that they map read-only: a record for each grant to read that stands, and for each page how many bytes of it
// are under any of them. A reader compares the grant's word with the grant's id beside the page's generation, before
// and after each page's copy, as a target compares the permit of a push (see permit.go, with "revoke" for "cancel" and
// "the reader" for T). Revoke changes the word, with a full barrier, before it says Revoked: a copy that passes was
// made of bytes that nobody stored into from its first load to its last.
//
// Any number of reads may be under way under one grant: the word is the grant's, and no reader changes anything.
//
// A record stands where the low 16 bits of the grant's id say, which no two grants that are in force have in common. It
// also names the peer that was granted, and a reader takes another's grant for refused. That keeps order among honest
// processes; there is no wall in it, for whoever has mapped the pool may look at all of it. Therefore only processes of
// the same user are let map it.
//
//	word                        of
//	3s, 3s+1, 3s+2              the grant in slot s: its id, zero if there is none; its peer
//	3*2^16 and on, 32 bits each a page: its bytes under grants to read, zero if there is none

const (
	readSlots      = 1 << 16
	readSlotMask   = readSlots - 1
	readSlotWords  = 3
	readTableBytes = readSlots * readSlotWords * 8
)

// readPermits are the words of one pool. Its methods are not safe for concurrent use.
type readPermits struct {
	file  *os.File
	mem   []byte
	table readTable
}

// readTable views the words, of a pool or of a peer's.
type readTable struct {
	slots   []uint64
	lengths []uint32
}

func readTableOf(mem []byte, pages uint32) readTable {
	return readTable{
		slots:   unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(mem))), readSlots*readSlotWords),
		lengths: unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(mem[readTableBytes:]))), pages),
	}
}

func readPermitsBytes(pages uint32) uint64 { return readTableBytes + uint64(pages)*4 }

// slot is a grant's record.
func (t readTable) slot(id effects.GrantID) []uint64 {
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

// issue lets a peer read under a grant. The slot must be free.
func (r *readPermits) issue(id effects.GrantID, peer effects.Incarnation) {
	slot := r.table.slot(id)
	if was := atomic.LoadUint64(&slot[0]); was != 0 {
		panic(fmt.Sprintf("BUG: grant %d has the slot of grant %d, which stands", id, was))
	}
	atomic.StoreUint64(&slot[1], binary.NativeEndian.Uint64(peer[:8]))
	atomic.StoreUint64(&slot[2], binary.NativeEndian.Uint64(peer[8:]))
	atomic.StoreUint64(&slot[0], uint64(id))
}

// withdraw ends an issued permit: no copy that is in progress anywhere, or begun later, will pass under the grant.
func (r *readPermits) withdraw(id effects.GrantID) { publish(&r.table.slot(id)[0], 0) }

// lend says how many bytes of a page are under grants to read.
func (r *readPermits) lend(index, length uint32) {
	atomic.StoreUint32(&r.table.lengths[index], length)
}

func (r *readPermits) lent(index uint32) uint32 { return atomic.LoadUint32(&r.table.lengths[index]) }

func (r *readPermits) close() error {
	if err := syscall.Munmap(r.mem); err != nil {
		return fmt.Errorf("unmap the permits to read: %w", err)
	}
	return r.file.Close()
}

// PeerReadPermits are those of a peer's pool, mapped read-only.
type PeerReadPermits struct {
	mem   []byte
	table readTable
}

// MapReadPermits checks and maps the permits of a peer's pool of so many pages. It closes nothing: fd is the caller's.
func MapReadPermits(fd uintptr, pages uint32) (*PeerReadPermits, error) {
	size, _, err := sealedSize(fd)
	if err != nil {
		return nil, err
	}
	if want := readPermitsBytes(pages); size != want {
		return nil, fmt.Errorf("the peer's permits to read take %d bytes; %d pages need %d", size, pages, want)
	}
	mem, err := mapForReading(fd, size)
	if err != nil {
		return nil, err
	}
	return &PeerReadPermits{mem, readTableOf(mem, pages)}, nil
}

// Permit is the permit of a grant to reader for length bytes of a page. Codes: Withdrawn: no such grant stands, or no
// grant covers the page; Refused: it is another peer's; TooLarge: fewer bytes are granted. Whether the page is under
// this very grant is not looked at: whoever was offered it has it from the owner. The index must be within the mapping.
func (p *PeerReadPermits) Permit(id effects.GrantID, reader effects.Incarnation, index,
	length uint32) (Permit, effects.Code) {
	slot := p.table.slot(id)
	permit := Permit{&slot[0], uint64(id)}
	mine := atomic.LoadUint64(&slot[1]) == binary.NativeEndian.Uint64(reader[:8]) &&
		atomic.LoadUint64(&slot[2]) == binary.NativeEndian.Uint64(reader[8:])
	lent := atomic.LoadUint32(&p.table.lengths[index])
	switch {
	case id == 0 || !permit.stands(): // Looked at last: until here it was the record of this grant, if it is.
		return permit, effects.Withdrawn
	case !mine:
		return permit, effects.Refused
	case lent == 0:
		return permit, effects.Withdrawn
	case length > lent:
		return permit, effects.TooLarge
	}
	return permit, effects.OK
}

// Unmap ends the mapping. No Permit may be used afterwards.
func (p *PeerReadPermits) Unmap() error { return syscall.Munmap(p.mem) }
