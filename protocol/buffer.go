package protocol

import "math/bits"

// A BufferRef refers to one page of a registered buffer. It is meaningful only within the incarnation of the buffer's
// owner, because buffers get new UUIDs with every process.
type BufferRef struct {
	Buffer UUID
	Page   uint32
}

// A BufferInfo announces one registered buffer: LMCache-Ascend's PeerBufferInfo.
//
//wire:map name=PeerBufferInfo title=a_buffer
type BufferInfo struct {
	UUID     UUID   `wire:"uuid"`
	Ptr      uint64 `wire:"buffer_ptr"`         // address in the owner's memory; its use depends on the data plane
	Size     uint64 `wire:"buffer_size"`        // bytes
	PageSize uint64 `wire:"page_size"`          // bytes
	IsDevice bool   `wire:"is_device,optional"` // device memory; the reference implementation never sets it
}

// Valid reports whether the buffer consists of one or more whole pages that have addresses.
func (i *BufferInfo) Valid() bool {
	_, wraps := bits.Add64(i.Ptr, i.Size, 0)
	return i.PageSize != 0 && i.Size != 0 && i.Size%i.PageSize == 0 && wraps == 0
}

// Pages returns the number of whole pages in the buffer, 0 if it states no page size.
func (i *BufferInfo) Pages() uint64 {
	if i.PageSize == 0 {
		return 0
	}
	return i.Size / i.PageSize
}

// Page resolves a page index, as a peer sent it, to the page's offset in the buffer, in bytes. It reports false for an
// index outside the buffer. Every index must be checked with it, whatever message the index arrived in, because some
// revisions of the reference implementation write to any address that an index yields.
func (i *BufferInfo) Page(index int64) (offset uint64, ok bool) {
	if index < 0 || uint64(index) >= i.Pages() {
		return 0, false
	}
	return uint64(index) * i.PageSize, true
}
