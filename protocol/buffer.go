package protocol

import "math/bits"

// A BufferRef refers to one page of a registered buffer. The reference is valid only within the incarnation of the
// buffer's owner, because buffers get new UUIDs with every process.
type BufferRef struct {
	Buffer UUID
	Page   uint32
}

// A BufferInfo announces a registered buffer: LMCache-Ascend's PeerBufferInfo.
//
//wire:map name=PeerBufferInfo title=a_buffer
type BufferInfo struct {
	UUID     UUID   `wire:"uuid"`
	Ptr      uint64 `wire:"buffer_ptr"`         // address in the owner's memory; the meaning depends on the data plane
	Size     uint64 `wire:"buffer_size"`        // bytes
	PageSize uint64 `wire:"page_size"`          // bytes
	IsDevice bool   `wire:"is_device,optional"` // device memory; the reference implementation never sets the field
}

// Valid reports whether the buffer consists of whole pages, at least one, and does not exceed the address space.
func (i *BufferInfo) Valid() bool {
	_, wraps := bits.Add64(i.Ptr, i.Size, 0)
	return i.PageSize != 0 && i.Size != 0 && i.Size%i.PageSize == 0 && wraps == 0
}

// PageCount returns the number of whole pages in the buffer, or 0 if the buffer states no page size.
func (i *BufferInfo) PageCount() uint64 {
	if i.PageSize == 0 {
		return 0
	}
	return i.Size / i.PageSize
}

// PageOffset resolves a page index, as a peer sent it, to the page's offset in the buffer, in bytes. It reports false
// for an index outside the buffer. Every index of every message must be checked in this way, because some revisions of
// the reference implementation write to any address that an index yields.
func (i *BufferInfo) PageOffset(index int64) (offset uint64, ok bool) {
	if index < 0 || uint64(index) >= i.PageCount() {
		return 0, false
	}
	return uint64(index) * i.PageSize, true
}
